package main

// What scenarios say and the driver answers: typed values of field tables, and messages with their properties.

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// value is a value with its type: one key, a letter of AMQP's field tables.
type value map[string]json.RawMessage

// native is a typed value as the client takes it.
func native(v value) any {
	for kind, raw := range v {
		var number float64
		json.Unmarshal(raw, &number)
		switch kind {
		case "F":
			var inner map[string]value
			json.Unmarshal(raw, &inner)
			return table(inner)
		case "A":
			var inner []value
			json.Unmarshal(raw, &inner)
			list := []any{}
			for _, one := range inner {
				list = append(list, native(one))
			}
			return list
		case "t":
			return string(raw) == "true"
		case "S":
			var text string
			json.Unmarshal(raw, &text)
			return text
		case "x":
			var octets []byte
			json.Unmarshal(raw, &octets)
			return octets
		case "b":
			return int8(number)
		case "B":
			return byte(number)
		case "s":
			return int16(number)
		case "u":
			return uint16(number)
		case "I":
			return int32(number)
		case "i":
			return uint32(number)
		case "l":
			return int64(number)
		case "f":
			return float32(number)
		case "d":
			return number
		case "T":
			return time.Unix(int64(number), 0)
		case "D":
			var pair [2]int32
			json.Unmarshal(raw, &pair)
			return amqp.Decimal{Scale: uint8(pair[0]), Value: pair[1]}
		}
	}
	return nil
}

func table(typed map[string]value) amqp.Table {
	result := amqp.Table{}
	for key, one := range typed {
		result[key] = native(one)
	}
	return result
}

// plain is a value as the client gave it, for the answer.
func plain(v any) any {
	switch one := v.(type) {
	case amqp.Table:
		result := answer{}
		for key, inner := range one {
			result[key] = plain(inner)
		}
		return result
	case []any:
		list := []any{}
		for _, inner := range one {
			list = append(list, plain(inner))
		}
		return list
	case []byte:
		if strings.ToValidUTF8(string(one), "") == string(one) {
			return string(one)
		}
		return answer{"x": base64.StdEncoding.EncodeToString(one)}
	case time.Time:
		return answer{"T": one.Unix()}
	case amqp.Decimal:
		return answer{"D": []any{one.Scale, one.Value}}
	}
	return v
}

func properties(contentType, contentEncoding string, mode, priority uint8, correlation, reply, expiration, id string,
	stamp time.Time, kind, user, app string) answer {
	said := answer{}
	for name, text := range map[string]string{"content_type": contentType, "content_encoding": contentEncoding,
		"correlation_id": correlation, "reply_to": reply, "expiration": expiration, "message_id": id, "type": kind,
		"user_id": user, "app_id": app} {
		if text != "" {
			said[name] = text
		}
	}
	if mode != 0 {
		said["delivery_mode"] = mode
	}
	if priority != 0 {
		said["priority"] = priority
	}
	if !stamp.IsZero() {
		said["timestamp"] = stamp.Unix()
	}
	return said
}

func content(headers amqp.Table, body []byte, said answer) answer {
	result := answer{"body": base64.StdEncoding.EncodeToString(body), "properties": said, "headers": nil}
	if headers != nil {
		result["headers"] = plain(headers)
	}
	return result
}

func message(one amqp.Delivery) answer {
	what := content(one.Headers, one.Body, properties(one.ContentType, one.ContentEncoding, one.DeliveryMode, one.Priority,
		one.CorrelationId, one.ReplyTo, one.Expiration, one.MessageId, one.Timestamp, one.Type, one.UserId, one.AppId))
	what["delivery_tag"], what["redelivered"] = one.DeliveryTag, one.Redelivered
	what["exchange"], what["routing_key"] = one.Exchange, one.RoutingKey
	return what
}
