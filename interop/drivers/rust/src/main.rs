//! Driver for lapin: operations as lines of JSON on stdin, observations on stdout (../README.md).

use base64::{engine::general_purpose::STANDARD, Engine};
use futures_lite::StreamExt;
use lapin::options::*;
use lapin::protocol::AMQPErrorKind;
use lapin::tcp::OwnedTLSConfig;
use lapin::{Channel, Connection, ConnectionProperties, Error, ErrorKind, ExchangeKind};
use serde_json::{json, Value};
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use values::{message, properties, returned, table};

mod values;

const LATE: Duration = Duration::from_millis(1500); // what the reason of a refusal may take after the call has failed
const POLL: Duration = Duration::from_millis(5);
const VERSION: &str = "4.12.3"; // as in Cargo.toml

type Events = Arc<Mutex<Vec<Value>>>;
type Place = (String, String);

/// Why an operation failed: the client's error, or words of our own.
enum Failure {
    Client(Error),
    Own(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Client(error)
    }
}

struct Open {
    channel: Channel,
    published: Option<u64>, // with confirms: how many
}

#[derive(Default)]
struct Driver {
    connections: HashMap<String, Connection>,
    channels: HashMap<Place, Open>,
    events: Events,
    closes: Events, // of channels, whose number is found out when they are asked for
}

fn text<'a>(request: &'a Value, name: &str) -> &'a str {
    request[name].as_str().unwrap_or("")
}

fn flag(request: &Value, name: &str) -> bool {
    request[name].as_bool().unwrap_or(false)
}

fn place(request: &Value) -> Place {
    (text(request, "connection").into(), text(request, "channel").into())
}

fn happened(events: &Events, event: &str, at: (&str, Option<&str>), mut what: Value) {
    what["event"] = json!(event);
    what["connection"] = json!(at.0);
    what["channel"] = json!(at.1);
    events.lock().unwrap().push(what);
}

/// Percent-encoding of whatever is not plain in a URL.
fn encoded(part: &str) -> String {
    part.bytes().map(|octet| if octet.is_ascii_alphanumeric() { (octet as char).to_string() } else { format!("%{octet:02X}") }).collect()
}

/// A close by the broker, as it is answered; None for what is the client's own.
fn refusal(error: &Error) -> Option<Value> {
    match error.kind() {
        ErrorKind::ProtocolError(said) => {
            let scope = if matches!(said.kind(), AMQPErrorKind::Soft(_)) && said.get_id() != 320 { "channel" } else { "connection" };
            Some(json!({ "scope": scope, "code": said.get_id(), "text": said.get_message().as_str() }))
        }
        ErrorKind::IOError(_) | ErrorKind::MissingHeartbeatError => Some(json!({ "scope": "lost", "code": 0, "text": error.to_string() })),
        _ => None,
    }
}

impl Driver {
    async fn operate(&mut self, r: &Value) -> Result<Value, Failure> {
        let name = text(r, "connection").to_string();
        match text(r, "do") {
            "wait" => return Ok(self.wait(r).await),
            "reset" => return Ok(self.reset().await),
            "connection.open" => return self.open(r, &name).await,
            "connection.close" => {
                self.connection(&name)?.close(200, "bye".into()).await?;
                return Ok(json!({}));
            }
            "connection.update-secret" => {
                self.connection(&name)?.update_secret(text(r, "secret").into(), text(r, "reason").into()).await?;
                return Ok(json!({}));
            }
            "channel.open" => {
                let channel = self.connection(&name)?.create_channel().await?;
                self.channels.insert(place(r), Open { channel, published: None });
                return Ok(json!({}));
            }
            "basic.publish" => return self.publish(r).await,
            "basic.consume" => return self.consume(r).await,
            "confirm.select" => {
                self.channel(r)?.confirm_select(ConfirmSelectOptions::default()).await?;
                self.channels.get_mut(&place(r)).unwrap().published = Some(0);
                return Ok(json!({}));
            }
            _ => {}
        }
        let channel = self.channel(r)?;
        let arguments = table(&r["arguments"]);
        let (queue, exchange, key) = (text(r, "queue"), text(r, "exchange"), text(r, "routing_key"));
        let (multiple, requeue) = (flag(r, "multiple"), r["requeue"].as_bool().unwrap_or(true));
        let (tag, nowait) = (r["delivery_tag"].as_u64().unwrap_or(0), false);
        match text(r, "do") {
            "channel.close" => channel.close(200, "bye".into()).await?,
            "channel.flow" => {
                let active = channel.channel_flow(ChannelFlowOptions { active: flag(r, "active") }).await?;
                return Ok(json!({ "active": active }));
            }
            "exchange.declare" => {
                let kind = match text(r, "type") {
                    "fanout" => ExchangeKind::Fanout,
                    "topic" => ExchangeKind::Topic,
                    "headers" => ExchangeKind::Headers,
                    _ => ExchangeKind::Direct,
                };
                let options = ExchangeDeclareOptions {
                    passive: flag(r, "passive"), durable: flag(r, "durable"), auto_delete: flag(r, "auto_delete"), internal: flag(r, "internal"), nowait,
                };
                channel.exchange_declare(exchange.into(), kind, options, arguments).await?
            }
            "exchange.delete" => channel.exchange_delete(exchange.into(), ExchangeDeleteOptions { if_unused: flag(r, "if_unused"), nowait }).await?,
            "exchange.bind" => {
                let (destination, source) = (text(r, "destination").into(), text(r, "source").into());
                channel.exchange_bind(destination, source, key.into(), ExchangeBindOptions::default(), arguments).await?
            }
            "exchange.unbind" => {
                let (destination, source) = (text(r, "destination").into(), text(r, "source").into());
                channel.exchange_unbind(destination, source, key.into(), ExchangeUnbindOptions::default(), arguments).await?
            }
            "queue.declare" => {
                let options = QueueDeclareOptions {
                    passive: flag(r, "passive"), durable: flag(r, "durable"), exclusive: flag(r, "exclusive"), auto_delete: flag(r, "auto_delete"), nowait,
                };
                let ok = channel.queue_declare(queue.into(), options, arguments).await?;
                return Ok(json!({ "queue": ok.name().as_str(), "message_count": ok.message_count(), "consumer_count": ok.consumer_count() }));
            }
            "queue.bind" => channel.queue_bind(queue.into(), exchange.into(), key.into(), QueueBindOptions::default(), arguments).await?,
            "queue.unbind" => channel.queue_unbind(queue.into(), exchange.into(), key.into(), arguments).await?,
            "queue.purge" => {
                let count = channel.queue_purge(queue.into(), QueuePurgeOptions::default()).await?;
                return Ok(json!({ "message_count": count }));
            }
            "queue.delete" => {
                let options = QueueDeleteOptions { if_unused: flag(r, "if_unused"), if_empty: flag(r, "if_empty"), nowait };
                return Ok(json!({ "message_count": channel.queue_delete(queue.into(), options).await? }));
            }
            "basic.qos" => {
                let count = r["prefetch_count"].as_u64().unwrap_or(0) as u16;
                channel.basic_qos(count, BasicQosOptions { global: flag(r, "global") }).await?
            }
            "basic.cancel" => channel.basic_cancel(text(r, "consumer_tag").into(), BasicCancelOptions::default()).await?,
            "basic.get" => {
                return Ok(match channel.basic_get(queue.into(), BasicGetOptions { no_ack: flag(r, "no_ack") }).await? {
                    None => json!({ "empty": true }),
                    Some(one) => {
                        let mut what = message(&one.delivery);
                        what["message_count"] = json!(one.message_count);
                        what
                    }
                });
            }
            "basic.ack" => channel.basic_ack(tag, BasicAckOptions { multiple }).await?,
            "basic.nack" => channel.basic_nack(tag, BasicNackOptions { multiple, requeue }).await?,
            "basic.reject" => channel.basic_reject(tag, BasicRejectOptions { requeue }).await?,
            "basic.recover" => channel.basic_recover(BasicRecoverOptions { requeue }).await?,
            "basic.recover-async" => channel.basic_recover_async(BasicRecoverAsyncOptions { requeue }).await?,
            "tx.select" => channel.tx_select().await?,
            "tx.commit" => channel.tx_commit().await?,
            "tx.rollback" => channel.tx_rollback().await?,
            other => return Err(Failure::Own(format!("no such operation: {other}"))),
        }
        Ok(json!({}))
    }

    fn connection(&self, name: &str) -> Result<&Connection, Failure> {
        self.connections.get(name).ok_or_else(|| Failure::Own("no such connection".into()))
    }

    fn channel(&self, r: &Value) -> Result<Channel, Failure> {
        self.channels.get(&place(r)).map(|open| open.channel.clone()).ok_or_else(|| Failure::Own("no such channel".into()))
    }

    async fn open(&mut self, r: &Value, name: &str) -> Result<Value, Failure> {
        self.events.lock().unwrap().retain(|one| one["connection"] != name);
        self.closes.lock().unwrap().retain(|one| one["connection"] != name);
        let (scheme, tls) = match r["ca"].as_str() {
            None => ("amqp", OwnedTLSConfig::default()),
            Some(file) => {
                let pem = std::fs::read_to_string(file).map_err(|error| Failure::Own(error.to_string()))?;
                ("amqps", OwnedTLSConfig { identity: None, cert_chain: Some(pem) })
            }
        };
        let mut uri = format!(
            "{scheme}://{}:{}@{}:{}/{}?heartbeat={}", encoded(text(r, "user")), encoded(text(r, "password")), text(r, "host"), r["port"],
            encoded(text(r, "vhost")), r["heartbeat"].as_u64().unwrap_or(0),
        );
        if let Some(size) = r["frame_max"].as_u64() {
            uri += &format!("&frame_max={size}");
        }
        let uri = uri.parse().map_err(Failure::Own)?;
        let runtime = lapin::runtime::default_runtime()?;
        let connection = Connection::connect_uri_with_config(uri, ConnectionProperties::default(), tls, runtime).await?;
        let (events, closes, at) = (self.events.clone(), self.closes.clone(), name.to_string());
        let mut listener = Box::pin(connection.events_listener());
        tokio::spawn(async move {
            while let Some(event) = listener.next().await {
                match event {
                    lapin::Event::ConnectionBlocked(reason) => happened(&events, "blocked", (&at, None), json!({ "reason": reason })),
                    lapin::Event::ConnectionUnblocked => happened(&events, "unblocked", (&at, None), json!({})),
                    lapin::Event::Error(error) => match refusal(&error) {
                        Some(close) if close["scope"] == "channel" => happened(&closes, "closed", (&at, None), close),
                        Some(close) => happened(&events, "closed", (&at, None), close),
                        None => {}
                    },
                    _ => {}
                }
            }
        });
        self.connections.insert(name.into(), connection);
        Ok(json!({}))
    }

    async fn consume(&mut self, r: &Value) -> Result<Value, Failure> {
        let options = BasicConsumeOptions { no_ack: flag(r, "no_ack"), exclusive: flag(r, "exclusive"), ..Default::default() };
        let tag = text(r, "consumer_tag").into();
        let mut consumer = self.channel(r)?.basic_consume(text(r, "queue").into(), tag, options, table(&r["arguments"])).await?;
        let (events, (connection, number), tag) = (self.events.clone(), place(r), consumer.tag().to_string());
        let said = tag.clone();
        tokio::spawn(async move {
            let at = (connection.as_str(), Some(number.as_str()));
            while let Some(one) = consumer.next().await {
                let Ok(delivery) = one else { return };
                let mut what = message(&delivery);
                what["consumer_tag"] = json!(said);
                happened(&events, "delivery", at, what);
            }
            happened(&events, "cancel", at, json!({ "consumer_tag": said }));
        });
        Ok(json!({ "consumer_tag": tag }))
    }

    async fn publish(&mut self, r: &Value) -> Result<Value, Failure> {
        let channel = self.channel(r)?;
        let body = STANDARD.decode(text(r, "body")).unwrap();
        let options = BasicPublishOptions { mandatory: flag(r, "mandatory"), immediate: flag(r, "immediate") };
        let sent = channel.basic_publish(text(r, "exchange").into(), text(r, "routing_key").into(), options, &body, properties(r)).await?;
        let Some(published) = self.channels.get_mut(&place(r)).and_then(|open| open.published.as_mut()) else { return Ok(json!({})) };
        *published += 1;
        let (seq, events, (connection, number)) = (*published, self.events.clone(), place(r));
        tokio::spawn(async move {
            let at = (connection.as_str(), Some(number.as_str()));
            let Ok(outcome) = sent.await else { return };
            let ack = outcome.is_ack();
            if let Some(one) = outcome.take_message() {
                happened(&events, "return", at, returned(&one));
            }
            happened(&events, "confirm", at, json!({ "seq": seq, "ack": ack }));
        });
        Ok(json!({}))
    }

    /// What the client tells only who asks: whose channel was closed, and what came back without confirms.
    async fn ask(&self, r: &Value) {
        let Some(open) = self.channels.get(&place(r)) else { return };
        let (connection, number) = place(r);
        if !open.channel.status().connected() {
            let mut closes = self.closes.lock().unwrap();
            if let Some(found) = closes.iter().position(|one| one["connection"] == connection.as_str()) {
                let mut close = closes.remove(found);
                close["channel"] = json!(number);
                self.events.lock().unwrap().push(close);
            }
        } else if open.published.is_none() && text(r, "event") == "return" {
            for one in open.channel.wait_for_confirms().await.unwrap_or_default() {
                happened(&self.events, "return", (&connection, Some(&number)), returned(&one));
            }
        }
    }

    /// The first `count` events of a kind for a channel or its connection, taken out.
    async fn taken(&self, r: &Value, event: &str, count: usize, limit: Duration) -> Vec<Value> {
        let deadline = Instant::now() + limit;
        loop {
            self.ask(r).await;
            let over = Instant::now() >= deadline;
            {
                let mut events = self.events.lock().unwrap();
                let found: Vec<usize> = events.iter().enumerate()
                    .filter(|(_, one)| one["event"] == event && one["connection"] == r["connection"]
                        && (one["channel"].is_null() || one["channel"] == r["channel"]))
                    .map(|(index, _)| index).take(count).collect();
                if found.len() >= count || over {
                    let taken = found.iter().map(|&index| events[index].clone()).collect();
                    for index in found.into_iter().rev() {
                        events.remove(index);
                    }
                    return taken;
                }
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn wait(&self, r: &Value) -> Value {
        let limit = Duration::from_secs_f64(r["seconds"].as_f64().unwrap());
        json!({ "events": self.taken(r, text(r, "event"), r["count"].as_u64().unwrap() as usize, limit).await })
    }

    async fn reset(&mut self) -> Value {
        for connection in self.connections.values() {
            let _ = tokio::time::timeout(Duration::from_secs(1), connection.close(200, "bye".into())).await;
        }
        self.connections.clear();
        self.channels.clear();
        self.events.lock().unwrap().clear();
        self.closes.lock().unwrap().clear();
        json!({})
    }

    /// What a failed call is answered with: the close that explains it, which may be told a little later.
    async fn explained(&self, r: &Value, failure: Failure) -> Value {
        let text = match &failure {
            Failure::Own(text) => text.clone(),
            Failure::Client(error) => {
                if let Some(mut close) = refusal(error) {
                    if text(r, "do") == "connection.open" && close["scope"] == "channel" {
                        close["scope"] = json!("connection"); // there is no channel yet
                    }
                    return close;
                }
                error.to_string()
            }
        };
        match self.taken(r, "closed", 1, LATE).await.pop() {
            Some(one) => json!({ "scope": one["scope"], "code": one["code"], "text": one["text"] }),
            None => json!({ "scope": "client", "code": 0, "text": text }),
        }
    }
}

fn main() {
    let mut out = std::io::stdout();
    let lacks = json!({
        "basic.qos:prefetch_size": "fixed to 0",
        "recover": "declares nothing again by itself",
        "scenario:durable-a-restart-is-told": "tells of the reason or of the broken line, whichever it sees first",
        "type:L": "not written",
    });
    let language = concat!("Rust ", env!("DRIVER_RUSTC"));
    let hello = json!({ "client": "lapin", "version": VERSION, "language": language, "lacks": lacks, "reads_not": ["L"] });
    writeln!(out, "{hello}").unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut driver = Driver::default();
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let answer = runtime.block_on(async {
            match driver.operate(&request).await {
                Ok(ok) => json!({ "id": request["id"], "ok": ok }),
                Err(failure) => json!({ "id": request["id"], "error": driver.explained(&request, failure).await }),
            }
        });
        writeln!(out, "{answer}").unwrap();
        out.flush().unwrap();
    }
    std::process::exit(0);
}
