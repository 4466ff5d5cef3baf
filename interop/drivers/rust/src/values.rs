//! What scenarios say and the driver answers: typed values of field tables, and messages with their properties.

use base64::{engine::general_purpose::STANDARD, Engine};
use lapin::types::{AMQPValue, ByteArray, DecimalValue, FieldArray, FieldTable, LongString};
use lapin::{message::Delivery, BasicProperties};
use serde_json::{json, Map, Value};

/// A typed value as the client takes it.
fn native(typed: &Value) -> AMQPValue {
    let (kind, inner) = typed.as_object().and_then(|only| only.iter().next()).expect("a value has a type");
    let number = inner.as_i64().unwrap_or(0);
    match kind.as_str() {
        "F" => AMQPValue::FieldTable(table(inner)),
        "A" => AMQPValue::FieldArray(FieldArray::from(inner.as_array().unwrap().iter().map(native).collect::<Vec<_>>())),
        "t" => AMQPValue::Boolean(inner.as_bool().unwrap()),
        "S" => AMQPValue::LongString(LongString::from(inner.as_str().unwrap())),
        "x" => AMQPValue::ByteArray(ByteArray::from(STANDARD.decode(inner.as_str().unwrap()).unwrap())),
        "b" => AMQPValue::ShortShortInt(number as i8),
        "B" => AMQPValue::ShortShortUInt(number as u8),
        "s" => AMQPValue::ShortInt(number as i16),
        "u" => AMQPValue::ShortUInt(number as u16),
        "I" => AMQPValue::LongInt(number as i32),
        "i" => AMQPValue::LongUInt(number as u32),
        "l" => AMQPValue::LongLongInt(number),
        "f" => AMQPValue::Float(inner.as_f64().unwrap() as f32),
        "d" => AMQPValue::Double(inner.as_f64().unwrap()),
        "T" => AMQPValue::Timestamp(number as u64),
        "D" => AMQPValue::DecimalValue(DecimalValue { scale: inner[0].as_u64().unwrap() as u8, value: inner[1].as_u64().unwrap() as u32 }),
        _ => AMQPValue::Void,
    }
}

pub fn table(typed: &Value) -> FieldTable {
    let mut result = FieldTable::default();
    for (key, value) in typed.as_object().into_iter().flatten() {
        result.insert(key.as_str().into(), native(value));
    }
    result
}

fn octets(bytes: &[u8]) -> Value {
    std::str::from_utf8(bytes).map_or_else(|_| json!({ "x": STANDARD.encode(bytes) }), |text| json!(text))
}

/// A value as the client gave it, for the answer.
fn plain(value: &AMQPValue) -> Value {
    match value {
        AMQPValue::Boolean(one) => json!(one),
        AMQPValue::ShortShortInt(one) => json!(one),
        AMQPValue::ShortShortUInt(one) => json!(one),
        AMQPValue::ShortInt(one) => json!(one),
        AMQPValue::ShortUInt(one) => json!(one),
        AMQPValue::LongInt(one) => json!(one),
        AMQPValue::LongUInt(one) => json!(one),
        AMQPValue::LongLongInt(one) => json!(one),
        AMQPValue::Float(one) => json!(one),
        AMQPValue::Double(one) => json!(one),
        AMQPValue::DecimalValue(one) => json!({ "D": [one.scale, one.value] }),
        AMQPValue::ShortString(one) => json!(one.as_str()),
        AMQPValue::LongString(one) => octets(one.as_bytes()),
        AMQPValue::FieldArray(one) => Value::Array(one.as_slice().iter().map(plain).collect()),
        AMQPValue::Timestamp(one) => json!({ "T": one }),
        AMQPValue::FieldTable(one) => plain_table(one),
        AMQPValue::ByteArray(one) => octets(one.as_slice()),
        AMQPValue::Void => Value::Null,
    }
}

fn plain_table(fields: &FieldTable) -> Value {
    Value::Object(fields.inner().iter().map(|(key, value)| (key.to_string(), plain(value))).collect())
}

fn content(delivery: &Delivery) -> Value {
    let p = &delivery.properties;
    let mut said = Map::new();
    for (name, property) in [
        ("content_type", p.content_type()), ("content_encoding", p.content_encoding()), ("correlation_id", p.correlation_id()),
        ("reply_to", p.reply_to()), ("expiration", p.expiration()), ("message_id", p.message_id()), ("type", p.kind()),
        ("user_id", p.user_id()), ("app_id", p.app_id()), ("cluster_id", p.cluster_id()),
    ] {
        if let Some(value) = property {
            said.insert(name.into(), json!(value.as_str()));
        }
    }
    if let Some(mode) = p.delivery_mode() {
        said.insert("delivery_mode".into(), json!(mode));
    }
    if let Some(priority) = p.priority() {
        said.insert("priority".into(), json!(priority));
    }
    if let Some(stamp) = p.timestamp() {
        said.insert("timestamp".into(), json!(stamp));
    }
    json!({
        "body": STANDARD.encode(&delivery.data), "properties": said,
        "headers": p.headers().as_ref().map(plain_table),
        "exchange": delivery.exchange.as_str(), "routing_key": delivery.routing_key.as_str(),
    })
}

pub fn message(delivery: &Delivery) -> Value {
    let mut what = content(delivery);
    what["delivery_tag"] = json!(delivery.delivery_tag);
    what["redelivered"] = json!(delivery.redelivered);
    what
}

pub fn returned(one: &lapin::message::BasicReturnMessage) -> Value {
    let mut what = content(&one.delivery);
    what["code"] = json!(one.reply_code);
    what["text"] = json!(one.reply_text.as_str());
    what
}

pub fn properties(request: &Value) -> BasicProperties {
    let mut p = BasicProperties::default();
    for (name, value) in request["properties"].as_object().into_iter().flatten() {
        let text = || value.as_str().unwrap_or("").into();
        let number = value.as_u64().unwrap_or(0);
        p = match name.as_str() {
            "content_type" => p.with_content_type(text()),
            "content_encoding" => p.with_content_encoding(text()),
            "delivery_mode" => p.with_delivery_mode(number as u8),
            "priority" => p.with_priority(number as u8),
            "correlation_id" => p.with_correlation_id(text()),
            "reply_to" => p.with_reply_to(text()),
            "expiration" => p.with_expiration(text()),
            "message_id" => p.with_message_id(text()),
            "timestamp" => p.with_timestamp(number),
            "type" => p.with_type(text()),
            "user_id" => p.with_user_id(text()),
            "app_id" => p.with_app_id(text()),
            _ => p.with_cluster_id(text()),
        };
    }
    if request["headers"].is_object() {
        p = p.with_headers(table(&request["headers"]));
    }
    p
}
