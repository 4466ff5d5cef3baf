// Driver for amqp091-go: operations as lines of JSON on stdin, observations on stdout (../README.md).
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const client = "github.com/rabbitmq/amqp091-go"
const late = 1500 * time.Millisecond // what the reason of a refusal may take after the call has failed

// request is any operation; what it does not say is the zero value, which is also the field's default.
type request struct {
	ID                                              int
	Do, Connection, Channel                         string
	Host, User, Password, Vhost, Ca, Secret, Reason string
	Port, Heartbeat                                 int
	FrameMax                                        int `json:"frame_max"`
	Recover                                         bool
	Active                                          bool
	Exchange, Type, Destination, Source, Queue      string
	RoutingKey                                      string `json:"routing_key"`
	Passive, Durable, Exclusive, Internal           bool
	AutoDelete                                      bool `json:"auto_delete"`
	IfUnused                                        bool `json:"if_unused"`
	IfEmpty                                         bool `json:"if_empty"`
	Arguments, Headers                              map[string]value
	PrefetchSize                                    int `json:"prefetch_size"`
	PrefetchCount                                   int `json:"prefetch_count"`
	Global                                          bool
	ConsumerTag                                     string `json:"consumer_tag"`
	NoAck                                           bool   `json:"no_ack"`
	Mandatory, Immediate                            bool
	Body                                            string
	Properties                                      map[string]json.RawMessage
	DeliveryTag                                     uint64 `json:"delivery_tag"`
	Multiple                                        bool
	Requeue                                         *bool
	Event                                           string
	Count                                           int
	Seconds                                         float64
}

type answer map[string]any

// lacks says what the client has no call for: operation, operation:argument, type:LETTER, scenario:NAME.
var lacks = map[string]string{
	"basic.recover-async":         "no such call",
	"connection.open:unannounced": "always announces connection.blocked",
	"type:L":                      "not written",
	"scenario:content-cluster-id": "no such field",
	"scenario:M4":                 "gives up by itself after three intervals, since its heartbeats wait behind the blocked write",
	"connection.open=text":        "says it in its own words",
}

var (
	connections = map[string]*amqp.Connection{}
	channels    = map[string]*amqp.Channel{}
)

func closed(r *request, channel any) chan *amqp.Error {
	told := make(chan *amqp.Error, 1)
	connection := r.Connection
	go func() {
		reason := <-told
		if reason == nil {
			return
		}
		code, text := reason.Code, reason.Reason
		scope := "connection"
		if !reason.Server {
			scope, code = "lost", 0
		} else if code < 500 && code != amqp.ConnectionForced && code != amqp.InvalidPath {
			scope = "channel"
		}
		if (scope == "channel") == (channel != nil) {
			happened("closed", connection, channel, answer{"scope": scope, "code": code, "text": text})
		}
	}()
	return told
}

func open(r *request) error {
	config := amqp.Config{
		Vhost:     r.Vhost,
		Heartbeat: time.Duration(r.Heartbeat) * time.Second,
		FrameSize: r.FrameMax,
		Locale:    "en_US",
		SASL:      []amqp.Authentication{&amqp.PlainAuth{Username: r.User, Password: r.Password}},
	}
	if r.Recover {
		config.Recovery = &amqp.Recovery{ReconnectionConfig: &amqp.ReconnectionConfig{RetryInterval: 200 * time.Millisecond, MaxRetryCount: 200}}
	}
	scheme := "amqp"
	if r.Ca != "" {
		pem, err := os.ReadFile(r.Ca)
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		scheme, config.TLSClientConfig = "amqps", &tls.Config{RootCAs: pool, ServerName: "localhost"}
	}
	connection, err := amqp.DialConfig(fmt.Sprintf("%s://%s:%d/", scheme, r.Host, r.Port), config)
	if err != nil {
		var refused *amqp.Error
		if errors.As(err, &refused) && refused.Code != 0 {
			return refusal{"connection", refused.Code, refused.Reason}
		}
		return err
	}
	name := r.Connection
	connections[name] = connection
	connection.NotifyClose(closed(r, nil))
	blockings := connection.NotifyBlocked(make(chan amqp.Blocking, 10))
	go func() {
		for one := range blockings {
			if one.Active {
				happened("blocked", name, nil, answer{"reason": one.Reason})
			} else {
				happened("unblocked", name, nil, answer{})
			}
		}
	}()
	return nil
}

type refusal struct {
	scope string
	code  int
	text  string
}

func (r refusal) Error() string { return r.text }

func openChannel(r *request) error {
	channel, err := connections[r.Connection].Channel()
	if err != nil {
		return err
	}
	connection, number := r.Connection, r.Channel
	channels[connection+" "+number] = channel
	channel.NotifyClose(closed(r, number))
	returns := channel.NotifyReturn(make(chan amqp.Return, 100))
	cancels := channel.NotifyCancel(make(chan string, 10))
	go func() {
		for one := range returns {
			what := content(one.Headers, one.Body, properties(one.ContentType, one.ContentEncoding, one.DeliveryMode,
				one.Priority, one.CorrelationId, one.ReplyTo, one.Expiration, one.MessageId, one.Timestamp, one.Type, one.UserId, one.AppId))
			what["code"], what["text"], what["exchange"], what["routing_key"] = one.ReplyCode, one.ReplyText, one.Exchange, one.RoutingKey
			happened("return", connection, number, what)
		}
	}()
	go func() {
		for tag := range cancels {
			happened("cancel", connection, number, answer{"consumer_tag": tag})
		}
	}()
	return nil
}

func confirm(r *request, channel *amqp.Channel) error {
	if err := channel.Confirm(false); err != nil {
		return err
	}
	connection, number := r.Connection, r.Channel
	confirmations := channel.NotifyPublish(make(chan amqp.Confirmation, 1000))
	go func() {
		for one := range confirmations {
			happened("confirm", connection, number, answer{"seq": one.DeliveryTag, "ack": one.Ack})
		}
	}()
	return nil
}

func consume(r *request, channel *amqp.Channel) (answer, error) {
	tag := r.ConsumerTag
	if tag == "" {
		tag = fmt.Sprintf("ctag-%d", r.ID) // the client makes one of its own and does not tell
	}
	deliveries, err := channel.Consume(r.Queue, tag, r.NoAck, r.Exclusive, false, false, table(r.Arguments))
	if err != nil {
		return nil, err
	}
	connection, number := r.Connection, r.Channel
	go func() {
		for one := range deliveries {
			what := message(one)
			what["consumer_tag"] = one.ConsumerTag
			happened("delivery", connection, number, what)
		}
	}()
	return answer{"consumer_tag": tag}, nil
}

func publish(r *request, channel *amqp.Channel) error {
	message := amqp.Publishing{}
	message.Body, _ = base64.StdEncoding.DecodeString(r.Body)
	if r.Headers != nil {
		message.Headers = table(r.Headers)
	}
	for name, place := range map[string]any{"content_type": &message.ContentType, "content_encoding": &message.ContentEncoding,
		"delivery_mode": &message.DeliveryMode, "priority": &message.Priority, "correlation_id": &message.CorrelationId,
		"reply_to": &message.ReplyTo, "expiration": &message.Expiration, "message_id": &message.MessageId,
		"type": &message.Type, "user_id": &message.UserId, "app_id": &message.AppId} {
		if raw, said := r.Properties[name]; said {
			json.Unmarshal(raw, place)
		}
	}
	if raw, said := r.Properties["timestamp"]; said {
		var seconds int64
		json.Unmarshal(raw, &seconds)
		message.Timestamp = time.Unix(seconds, 0)
	}
	return channel.PublishWithContext(context.Background(), r.Exchange, r.RoutingKey, r.Mandatory, r.Immediate, message)
}

func declareQueue(r *request, channel *amqp.Channel) (answer, error) {
	declare := channel.QueueDeclare
	if r.Passive {
		declare = channel.QueueDeclarePassive
	}
	queue, err := declare(r.Queue, r.Durable, r.AutoDelete, r.Exclusive, false, table(r.Arguments))
	return answer{"queue": queue.Name, "message_count": queue.Messages, "consumer_count": queue.Consumers}, err
}

func declareExchange(r *request, channel *amqp.Channel) error {
	declare := channel.ExchangeDeclare
	if r.Passive {
		declare = channel.ExchangeDeclarePassive
	}
	return declare(r.Exchange, r.Type, r.Durable, r.AutoDelete, r.Internal, false, table(r.Arguments))
}

func reset() {
	for _, connection := range connections {
		connection.CloseDeadline(time.Now().Add(time.Second))
	}
	clear(connections)
	clear(channels)
	lock.Lock()
	events = nil
	lock.Unlock()
}

func operate(r *request) (answer, error) {
	channel := channels[r.Connection+" "+r.Channel]
	requeue := r.Requeue == nil || *r.Requeue
	switch r.Do {
	case "wait":
		return wait(r)
	case "reset":
		reset()
		return nil, nil
	case "connection.open":
		forget(r.Connection)
		return nil, open(r)
	case "connection.close":
		return nil, connections[r.Connection].Close()
	case "connection.update-secret":
		return nil, connections[r.Connection].UpdateSecret(r.Secret, r.Reason)
	case "channel.open":
		return nil, openChannel(r)
	}
	if channel == nil {
		return nil, errors.New("no such channel")
	}
	switch r.Do {
	case "channel.close":
		return nil, channel.Close()
	case "channel.flow":
		return answer{"active": r.Active}, channel.Flow(r.Active)
	case "exchange.declare":
		return nil, declareExchange(r, channel)
	case "exchange.delete":
		return nil, channel.ExchangeDelete(r.Exchange, r.IfUnused, false)
	case "exchange.bind":
		return nil, channel.ExchangeBind(r.Destination, r.RoutingKey, r.Source, false, table(r.Arguments))
	case "exchange.unbind":
		return nil, channel.ExchangeUnbind(r.Destination, r.RoutingKey, r.Source, false, table(r.Arguments))
	case "queue.declare":
		return declareQueue(r, channel)
	case "queue.bind":
		return nil, channel.QueueBind(r.Queue, r.RoutingKey, r.Exchange, false, table(r.Arguments))
	case "queue.unbind":
		return nil, channel.QueueUnbind(r.Queue, r.RoutingKey, r.Exchange, table(r.Arguments))
	case "queue.purge":
		count, err := channel.QueuePurge(r.Queue, false)
		return answer{"message_count": count}, err
	case "queue.delete":
		count, err := channel.QueueDelete(r.Queue, r.IfUnused, r.IfEmpty, false)
		return answer{"message_count": count}, err
	case "basic.qos":
		return nil, channel.Qos(r.PrefetchCount, r.PrefetchSize, r.Global)
	case "basic.consume":
		return consume(r, channel)
	case "basic.cancel":
		return nil, channel.Cancel(r.ConsumerTag, false)
	case "basic.publish":
		return nil, publish(r, channel)
	case "basic.get":
		one, found, err := channel.Get(r.Queue, r.NoAck)
		if err != nil || !found {
			return answer{"empty": true}, err
		}
		what := message(one)
		what["message_count"] = one.MessageCount
		return what, nil
	case "basic.ack":
		return nil, channel.Ack(r.DeliveryTag, r.Multiple)
	case "basic.nack":
		return nil, channel.Nack(r.DeliveryTag, r.Multiple, requeue)
	case "basic.reject":
		return nil, channel.Reject(r.DeliveryTag, requeue)
	case "basic.recover":
		return nil, channel.Recover(requeue)
	case "confirm.select":
		return nil, confirm(r, channel)
	case "tx.select":
		return nil, channel.Tx()
	case "tx.commit":
		return nil, channel.TxCommit()
	case "tx.rollback":
		return nil, channel.TxRollback()
	}
	return nil, errors.New("no such operation")
}

// explained is what a failed call is answered with: the close that explains it, which may be told a little later.
func explained(r *request, err error) answer {
	var own refusal
	if errors.As(err, &own) {
		return answer{"scope": own.scope, "code": own.code, "text": own.text}
	}
	lock.Lock()
	defer lock.Unlock()
	if found := waitFor(r, "closed", 1, late); len(found) > 0 {
		one := events[found[0]]
		return answer{"scope": one["scope"], "code": one["code"], "text": one["text"]}
	}
	return answer{"scope": "client", "code": 0, "text": err.Error()}
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, one := range info.Deps {
		if one.Path == client {
			return strings.TrimPrefix(one.Version, "v")
		}
	}
	return "?"
}

func main() {
	out := json.NewEncoder(os.Stdout)
	out.Encode(answer{"client": "amqp091-go", "version": version(), "language": "Go " + strings.TrimPrefix(runtime.Version(), "go"),
		"lacks": lacks, "reads_not": []string{"L"}})
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		r := &request{}
		if err := json.Unmarshal(line, r); err != nil {
			out.Encode(answer{"id": r.ID, "error": answer{"scope": "client", "code": 0, "text": err.Error()}})
			continue
		}
		result, err := operate(r)
		if err != nil {
			out.Encode(answer{"id": r.ID, "error": explained(r, err)})
			continue
		}
		if result == nil {
			result = answer{}
		}
		out.Encode(answer{"id": r.ID, "ok": result})
	}
}
