import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AuthenticationFailureException;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.LongString;
import com.rabbitmq.client.Method;
import com.rabbitmq.client.ShutdownSignalException;
import com.rabbitmq.client.impl.StrictExceptionHandler;
import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Date;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Driver for RabbitMQ's Java client: operations as lines of JSON on stdin, observations on stdout (../README.md). */
public final class Driver {
    private static final long LATE_MS = 1500; // what the reason of a refusal may take after the call has failed

    /** The broker closed a channel or connection (scope: channel, connection), or it broke off (lost). */
    private static final class Closed extends Exception {
        final Map<String, Object> answer;

        Closed(String scope, int code, String text) {
            super(text);
            answer = map("scope", scope, "code", code, "text", text);
        }
    }

    private final Map<String, Connection> connections = new HashMap<>();
    private final Map<String, Channel> channels = new HashMap<>();
    private final List<Map<String, Object>> events = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        new Driver().serve();
    }

    private void serve() throws Exception {
        Gson gson = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        Map<String, Object> lacks = new LinkedHashMap<>();
        lacks.put("basic.recover-async", "no such call");
        lacks.put("channel.flow", "no such call");
        lacks.put("connection.update-secret", "only through a credentials provider");
        for (String letter : "B u i L".split(" ")) lacks.put("type:" + letter, "not written");
        String version = ConnectionFactory.class.getPackage().getImplementationVersion();
        out.println(gson.toJson(map("client", "amqp-client", "version", version != null ? version : "?",
            "language", "Java " + System.getProperty("java.version"), "lacks", lacks, "reads_not", List.of("L"))));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            int id = request.get("id").getAsInt();
            try {
                Map<String, Object> answer = operate(request);
                out.println(gson.toJson(map("id", id, "ok", answer != null ? answer : map())));
            } catch (Exception error) {
                out.println(gson.toJson(map("id", id, "error", explained(request, error))));
            }
        }
        System.exit(0);
    }

    private Map<String, Object> operate(JsonObject r) throws Exception {
        String name = text(r, "connection", "");
        String key = name + " " + text(r, "channel", "");
        switch (text(r, "do", "")) {
            case "wait":
                return await(r);
            case "reset":
                return reset();
            case "connection.open":
                return open(r, name);
            case "connection.close":
                connections.get(name).close();
                return null;
            case "channel.open":
                return openChannel(r, name, key);
            default:
        }
        Channel channel = channels.get(key);
        Map<String, Object> arguments = table(r.get("arguments"));
        String queue = text(r, "queue", "");
        String exchange = text(r, "exchange", "");
        String routingKey = text(r, "routing_key", "");
        long tag = r.has("delivery_tag") ? r.get("delivery_tag").getAsLong() : 0;
        boolean requeue = !r.has("requeue") || flag(r, "requeue");
        switch (text(r, "do", "")) {
            case "channel.close" -> channel.close();
            case "exchange.declare" -> {
                if (flag(r, "passive")) channel.exchangeDeclarePassive(exchange);
                else channel.exchangeDeclare(exchange, text(r, "type", ""), flag(r, "durable"), flag(r, "auto_delete"), flag(r, "internal"), arguments);
            }
            case "exchange.delete" -> channel.exchangeDelete(exchange, flag(r, "if_unused"));
            case "exchange.bind" -> channel.exchangeBind(text(r, "destination", ""), text(r, "source", ""), routingKey, arguments);
            case "exchange.unbind" -> channel.exchangeUnbind(text(r, "destination", ""), text(r, "source", ""), routingKey, arguments);
            case "queue.declare" -> {
                AMQP.Queue.DeclareOk ok = flag(r, "passive") ? channel.queueDeclarePassive(queue)
                    : channel.queueDeclare(queue, flag(r, "durable"), flag(r, "exclusive"), flag(r, "auto_delete"), arguments);
                return map("queue", ok.getQueue(), "message_count", ok.getMessageCount(), "consumer_count", ok.getConsumerCount());
            }
            case "queue.bind" -> channel.queueBind(queue, exchange, routingKey, arguments);
            case "queue.unbind" -> channel.queueUnbind(queue, exchange, routingKey, arguments);
            case "queue.purge" -> {
                return map("message_count", channel.queuePurge(queue).getMessageCount());
            }
            case "queue.delete" -> {
                return map("message_count", channel.queueDelete(queue, flag(r, "if_unused"), flag(r, "if_empty")).getMessageCount());
            }
            case "basic.qos" -> channel.basicQos(number(r, "prefetch_size"), number(r, "prefetch_count"), flag(r, "global"));
            case "basic.consume" -> {
                return map("consumer_tag", channel.basicConsume(queue, flag(r, "no_ack"), text(r, "consumer_tag", ""), false,
                    flag(r, "exclusive"), arguments, consumer(channel, name, text(r, "channel", ""))));
            }
            case "basic.cancel" -> channel.basicCancel(text(r, "consumer_tag", ""));
            case "basic.publish" -> channel.basicPublish(exchange, routingKey, flag(r, "mandatory"), flag(r, "immediate"),
                properties(r), Base64.getDecoder().decode(text(r, "body", "")));
            case "basic.get" -> {
                GetResponse one = channel.basicGet(queue, flag(r, "no_ack"));
                if (one == null) return map("empty", true);
                Map<String, Object> answer = message(one.getEnvelope(), one.getProps(), one.getBody());
                answer.put("message_count", one.getMessageCount());
                return answer;
            }
            case "basic.ack" -> channel.basicAck(tag, flag(r, "multiple"));
            case "basic.nack" -> channel.basicNack(tag, flag(r, "multiple"), requeue);
            case "basic.reject" -> channel.basicReject(tag, requeue);
            case "basic.recover" -> channel.basicRecover(requeue);
            case "confirm.select" -> confirm(channel, name, text(r, "channel", ""));
            case "tx.select" -> channel.txSelect();
            case "tx.commit" -> channel.txCommit();
            case "tx.rollback" -> channel.txRollback();
            default -> throw new IllegalArgumentException("no such operation");
        }
        return null;
    }

    private Map<String, Object> open(JsonObject r, String name) throws Exception {
        synchronized (events) {
            events.removeIf(one -> name.equals(one.get("connection")));
        }
        ConnectionFactory factory = new ConnectionFactory();
        factory.setHost(text(r, "host", ""));
        factory.setPort(number(r, "port"));
        factory.setUsername(text(r, "user", ""));
        factory.setPassword(text(r, "password", ""));
        factory.setVirtualHost(text(r, "vhost", ""));
        factory.setRequestedHeartbeat(number(r, "heartbeat"));
        factory.setRequestedFrameMax(number(r, "frame_max"));
        factory.setAutomaticRecoveryEnabled(flag(r, "recover"));
        factory.setNetworkRecoveryInterval(200);
        factory.setExceptionHandler(new StrictExceptionHandler());
        if (flag(r, "unannounced")) {
            Map<String, Object> properties = new HashMap<>(factory.getClientProperties());
            properties.put("capabilities", map("basic.nack", true, "consumer_cancel_notify", true, "publisher_confirms", true));
            factory.setClientProperties(properties);
        }
        if (r.has("ca")) {
            factory.useSslProtocol(trusting(text(r, "ca", "")));
            factory.enableHostnameVerification();
        }
        Connection connection;
        try {
            connection = factory.newConnection();
        } catch (AuthenticationFailureException error) {
            throw new Closed("connection", 403, error.getMessage());
        }
        connections.put(name, connection);
        connection.addShutdownListener(cause -> closed(name, null, cause));
        connection.addBlockedListener(
            reason -> happened("blocked", name, null, map("reason", reason)), () -> happened("unblocked", name, null, map()));
        return null;
    }

    private static SSLContext trusting(String file) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (FileInputStream pem = new FileInputStream(file)) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }

    private Map<String, Object> openChannel(JsonObject r, String name, String key) throws Exception {
        Channel channel = connections.get(name).createChannel();
        String number = text(r, "channel", "");
        channel.addShutdownListener(cause -> closed(name, number, cause));
        channel.addReturnListener((code, why, exchange, routingKey, properties, body) -> {
            Map<String, Object> what = content(properties, body);
            what.putAll(map("code", code, "text", why, "exchange", exchange, "routing_key", routingKey));
            happened("return", name, number, what);
        });
        channels.put(key, channel);
        return null;
    }

    private void confirm(Channel channel, String name, String number) throws Exception {
        channel.confirmSelect();
        TreeSet<Long> told = new TreeSet<>(); // those that are settled, from 1 without a gap up to the last "multiple"
        channel.addConfirmListener(
            (tag, multiple) -> confirmed(name, number, told, tag, multiple, true),
            (tag, multiple) -> confirmed(name, number, told, tag, multiple, false));
    }

    private void confirmed(String name, String number, TreeSet<Long> told, long tag, boolean multiple, boolean ack) {
        for (long seq = multiple ? 1 : tag; seq <= tag; seq++) {
            if (told.add(seq)) happened("confirm", name, number, map("seq", seq, "ack", ack));
        }
    }

    private DefaultConsumer consumer(Channel channel, String name, String number) {
        return new DefaultConsumer(channel) {
            @Override
            public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body) {
                Map<String, Object> what = message(envelope, properties, body);
                what.put("consumer_tag", tag);
                happened("delivery", name, number, what);
            }

            @Override
            public void handleCancel(String tag) {
                happened("cancel", name, number, map("consumer_tag", tag));
            }
        };
    }

    private Map<String, Object> reset() {
        for (Connection connection : connections.values()) connection.abort(1000);
        connections.clear();
        channels.clear();
        synchronized (events) {
            events.clear();
        }
        return null;
    }

    /** What a close by the broker is told as; null for one of our own. */
    private static Closed reason(ShutdownSignalException cause) {
        Method reason = cause.getReason();
        if (cause.isInitiatedByApplication()) return null;
        if (reason instanceof AMQP.Channel.Close close) return new Closed("channel", close.getReplyCode(), close.getReplyText());
        if (reason instanceof AMQP.Connection.Close close) return new Closed("connection", close.getReplyCode(), close.getReplyText());
        return new Closed("lost", 0, String.valueOf(cause));
    }

    private void closed(String name, String number, ShutdownSignalException cause) {
        Closed reason = reason(cause);
        if (reason != null && "channel".equals(reason.answer.get("scope")) == (number != null)) {
            happened("closed", name, number, new LinkedHashMap<>(reason.answer));
        }
    }

    /** What a failed call is answered with: the close that explains it, which may be told a little later. */
    private Map<String, Object> explained(JsonObject r, Exception error) throws InterruptedException {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof Closed closed) return closed.answer;
            if (cause instanceof ShutdownSignalException signal && reason(signal) != null) return reason(signal).answer;
        }
        synchronized (events) {
            List<Map<String, Object>> found = matching(r, "closed", 1, LATE_MS);
            if (!found.isEmpty()) {
                Map<String, Object> one = found.get(0);
                return map("scope", one.get("scope"), "code", one.get("code"), "text", one.get("text"));
            }
        }
        return map("scope", "client", "code", 0, "text", String.valueOf(error));
    }

    private void happened(String event, String connection, String channel, Map<String, Object> what) {
        what.put("event", event);
        what.put("connection", connection);
        what.put("channel", channel);
        synchronized (events) {
            events.add(what);
            events.notifyAll();
        }
    }

    private Map<String, Object> await(JsonObject r) throws InterruptedException {
        synchronized (events) {
            long limit = (long) (r.get("seconds").getAsDouble() * 1000);
            List<Map<String, Object>> found = matching(r, text(r, "event", ""), number(r, "count"), limit);
            events.removeAll(found);
            return map("events", found);
        }
    }

    /** The first `count` events of a kind for a channel or its connection; the lock of `events` is held. */
    private List<Map<String, Object>> matching(JsonObject r, String event, int count, long limit) throws InterruptedException {
        long deadline = System.currentTimeMillis() + limit;
        while (true) {
            List<Map<String, Object>> found = events.stream()
                .filter(one -> event.equals(one.get("event")) && text(r, "connection", "").equals(one.get("connection"))
                    && (one.get("channel") == null || text(r, "channel", "").equals(one.get("channel"))))
                .limit(count).toList();
            long left = deadline - System.currentTimeMillis();
            if (found.size() >= count || left <= 0) return found;
            events.wait(left);
        }
    }

    private static Map<String, Object> message(Envelope envelope, AMQP.BasicProperties properties, byte[] body) {
        Map<String, Object> what = content(properties, body);
        what.putAll(map("delivery_tag", envelope.getDeliveryTag(), "redelivered", envelope.isRedeliver(),
            "exchange", envelope.getExchange(), "routing_key", envelope.getRoutingKey()));
        return what;
    }

    private static Map<String, Object> content(AMQP.BasicProperties p, byte[] body) {
        Map<String, Object> said = map("content_type", p.getContentType(), "content_encoding", p.getContentEncoding(),
            "delivery_mode", p.getDeliveryMode(), "priority", p.getPriority(), "correlation_id", p.getCorrelationId(),
            "reply_to", p.getReplyTo(), "expiration", p.getExpiration(), "message_id", p.getMessageId(),
            "timestamp", p.getTimestamp() == null ? null : p.getTimestamp().getTime() / 1000, "type", p.getType(),
            "user_id", p.getUserId(), "app_id", p.getAppId(), "cluster_id", p.getClusterId());
        said.values().removeIf(value -> value == null);
        return map("body", Base64.getEncoder().encodeToString(body), "properties", said, "headers", plain(p.getHeaders()));
    }

    private static AMQP.BasicProperties properties(JsonObject r) {
        JsonObject p = r.has("properties") ? r.getAsJsonObject("properties") : new JsonObject();
        return new AMQP.BasicProperties.Builder()
            .contentType(text(p, "content_type", null)).contentEncoding(text(p, "content_encoding", null))
            .headers(r.has("headers") ? table(r.get("headers")) : null)
            .deliveryMode(p.has("delivery_mode") ? number(p, "delivery_mode") : null)
            .priority(p.has("priority") ? number(p, "priority") : null)
            .correlationId(text(p, "correlation_id", null)).replyTo(text(p, "reply_to", null))
            .expiration(text(p, "expiration", null)).messageId(text(p, "message_id", null))
            .timestamp(p.has("timestamp") ? new Date(p.get("timestamp").getAsLong() * 1000) : null)
            .type(text(p, "type", null)).userId(text(p, "user_id", null)).appId(text(p, "app_id", null))
            .clusterId(text(p, "cluster_id", null)).build();
    }

    private static Map<String, Object> table(JsonElement typed) {
        Map<String, Object> result = new LinkedHashMap<>();
        if (typed != null) typed.getAsJsonObject().entrySet().forEach(entry -> result.put(entry.getKey(), valueOf(entry.getValue())));
        return result;
    }

    /** A typed value as the client takes it. */
    private static Object valueOf(JsonElement typed) {
        Map.Entry<String, JsonElement> only = typed.getAsJsonObject().entrySet().iterator().next();
        JsonElement inner = only.getValue();
        return switch (only.getKey()) {
            case "F" -> table(inner);
            case "A" -> {
                List<Object> list = new ArrayList<>();
                for (JsonElement one : inner.getAsJsonArray()) list.add(valueOf(one));
                yield list;
            }
            case "t" -> inner.getAsBoolean();
            case "S" -> inner.getAsString();
            case "x" -> Base64.getDecoder().decode(inner.getAsString());
            case "b" -> inner.getAsByte();
            case "s" -> inner.getAsShort();
            case "I" -> inner.getAsInt();
            case "l" -> inner.getAsLong();
            case "f" -> inner.getAsFloat();
            case "d" -> inner.getAsDouble();
            case "T" -> new Date(inner.getAsLong() * 1000);
            case "D" -> {
                JsonArray pair = inner.getAsJsonArray();
                yield new BigDecimal(BigInteger.valueOf(pair.get(1).getAsLong()), pair.get(0).getAsInt());
            }
            case "V" -> null;
            default -> throw new IllegalArgumentException("no such type");
        };
    }

    /** A value as the client gave it, for the answer. */
    private static Object plain(Object value) {
        if (value instanceof Map<?, ?> table) {
            Map<String, Object> result = new LinkedHashMap<>();
            table.forEach((key, inner) -> result.put(String.valueOf(key), plain(inner)));
            return result;
        }
        if (value instanceof List<?> list) {
            List<Object> result = new ArrayList<>();
            list.forEach(inner -> result.add(plain(inner)));
            return result;
        }
        if (value instanceof LongString text) return octets(text.getBytes());
        if (value instanceof byte[] bytes) return octets(bytes);
        if (value instanceof Date date) return map("T", date.getTime() / 1000);
        if (value instanceof BigDecimal decimal) return map("D", List.of(decimal.scale(), decimal.unscaledValue()));
        return value;
    }

    private static Object octets(byte[] bytes) {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
        } catch (CharacterCodingException error) {
            return map("x", Base64.getEncoder().encodeToString(bytes));
        }
    }

    private static Map<String, Object> map(Object... pairs) {
        Map<String, Object> result = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) result.put((String) pairs[i], pairs[i + 1]);
        return result;
    }

    private static String text(JsonObject r, String name, String otherwise) {
        return r.has(name) ? r.get(name).getAsString() : otherwise;
    }

    private static boolean flag(JsonObject r, String name) {
        return r.has(name) && r.get(name).getAsBoolean();
    }

    private static int number(JsonObject r, String name) {
        return r.has(name) ? r.get(name).getAsInt() : 0;
    }
}
