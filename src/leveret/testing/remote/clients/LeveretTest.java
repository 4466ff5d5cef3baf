// A client of `leveret test-server`, for tests in Java 17 and later. One file without dependencies: copy it, or
// `leveret test-server --client java > src/test/java/LeveretTest.java`. docs/test-server.md describes the operations.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A test broker, or with {@code vhost} one virtual host of it. Objects of JSON are maps, arrays are lists. */
public final class LeveretTest implements AutoCloseable {
    /** For AMQP clients. */
    public final String url;

    /** Null: the whole broker. */
    public final String vhost;

    private final String control;
    private final String token;
    private final Process process;
    private final HttpClient http;

    /** An assertion of the broker failed; the message has the reason. */
    public static final class NotSo extends AssertionError {
        private static final long serialVersionUID = 1;

        NotSo(String text) {
            super(text);
        }
    }

    private LeveretTest(String url, String vhost, String control, String token, Process process, HttpClient http) {
        this.url = url;
        this.vhost = vhost;
        this.control = control;
        this.token = token;
        this.process = process;
        this.http = http;
    }

    /**
     * Starts a test broker, which ends with this process, with arguments of {@code leveret test-server}. The command is
     * LEVERET from the environment, or {@code leveret}. If LEVERET_TEST_CONTROL is set, the broker at that URL is used.
     */
    public static LeveretTest start(String... arguments) throws IOException {
        var http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        var environment = System.getenv();
        if (environment.containsKey("LEVERET_TEST_CONTROL")) {
            var control = environment.get("LEVERET_TEST_CONTROL");
            var token = environment.get("LEVERET_TEST_TOKEN");
            var info = (Map<?, ?>) new LeveretTest(null, null, control, token, null, http).call("info", Map.of());
            return new LeveretTest((String) info.get("url"), null, control, token, null, http);
        }
        var command = new ArrayList<>(List.of(environment.getOrDefault("LEVERET", "leveret")));
        command.addAll(List.of("test-server", "--with-parent"));
        command.addAll(List.of(arguments));
        var process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        var output = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        var line = output.readLine();
        if (line == null) {
            throw new IOException(command + " ended");
        }
        var ready = (Map<?, ?>) new Json(line).value();
        var url = (String) ready.get("url");
        return new LeveretTest(url, null, (String) ready.get("control"), (String) ready.get("token"), process, http);
    }

    /**
     * Any operation by name.
     *
     * @throws NotSo an assertion failed
     * @throws IllegalArgumentException an argument is invalid
     */
    public Object call(String operation, Map<String, ?> arguments) {
        var body = HttpRequest.BodyPublishers.ofString(Json.text(arguments));
        var request = HttpRequest.newBuilder(URI.create(control + "/v1/" + operation))
                .header("Authorization", "Bearer " + token)
                .POST(body)
                .build();
        HttpResponse<String> answer;
        try {
            answer = http.send(request, HttpResponse.BodyHandlers.ofString());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(error);
        }
        var content = (Map<?, ?>) new Json(answer.body()).value();
        if (answer.statusCode() == 417) {
            throw new NotSo((String) content.get("error"));
        }
        if (answer.statusCode() != 200) {
            throw new IllegalArgumentException((String) content.get("error"));
        }
        return content.get("result");
    }

    /** Creates a virtual host with a free name, for tests that run at the same time. */
    public LeveretTest newVhost() {
        var made = (Map<?, ?>) call("vhosts.create", Map.of());
        return new LeveretTest((String) made.get("url"), (String) made.get("name"), control, token, null, http);
    }

    /** Resets this virtual host, or the whole broker. */
    public void reset() {
        call("reset", here(Map.of()));
    }

    /** The published messages, oldest first. */
    public List<?> published(Map<String, ?> arguments) {
        return (List<?>) call("published", here(arguments));
    }

    /** Fails unless a message like this was published. */
    public void assertPublished(Map<String, ?> arguments) {
        call("assert_published", here(arguments));
    }

    /** Fails if a message like this was published. */
    public void assertNotPublished(Map<String, ?> arguments) {
        call("assert_not_published", here(arguments));
    }

    /** Fails unless a queue has these messages. */
    public void assertQueue(String name, Map<String, ?> arguments) {
        call("assert_queue", here(with(arguments, "name", name)));
    }

    /** Waits until no message is ready, unacknowledged or scheduled. */
    public void settled() {
        call("settled", here(Map.of()));
    }

    /** Advances virtual time: {@code Map.of("hours", 2)}. */
    public void advance(Map<String, ?> time) {
        call("clock.advance", time);
    }

    /** Starts a fault; the returned function ends it. */
    public Runnable fault(String fault, Map<String, ?> arguments) {
        var started = (Map<?, ?>) call("faults.start", here(with(arguments, "fault", fault)));
        return () -> call("faults.stop", Map.of("id", started.get("id")));
    }

    /** Deletes this virtual host, or ends the broker that {@code start} started. */
    @Override
    public void close() throws IOException {
        if (vhost != null) {
            call("vhosts.delete", Map.of("name", vhost));
        } else if (process != null) {
            process.getOutputStream().close();
            try {
                process.waitFor();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private Map<String, ?> here(Map<String, ?> arguments) {
        return vhost == null || arguments.containsKey("vhost") ? arguments : with(arguments, "vhost", vhost);
    }

    private static Map<String, ?> with(Map<String, ?> arguments, String key, Object value) {
        var all = new LinkedHashMap<String, Object>(arguments);
        all.put(key, value);
        return all;
    }

    /** The JSON that a test server writes and reads: integers are Long, other numbers Double. */
    private static final class Json {
        private final String text;
        private int at;

        Json(String text) {
            this.text = text;
        }

        static String text(Object value) {
            if (value instanceof Map<?, ?> map) {
                var parts = new ArrayList<String>();
                map.forEach((key, each) -> parts.add(text(key.toString()) + ":" + text(each)));
                return "{" + String.join(",", parts) + "}";
            }
            if (value instanceof Iterable<?> items) {
                var parts = new ArrayList<String>();
                items.forEach(each -> parts.add(text(each)));
                return "[" + String.join(",", parts) + "]";
            }
            if (value == null || value instanceof Number || value instanceof Boolean) {
                return String.valueOf(value);
            }
            var quoted = new StringBuilder("\"");
            value.toString().chars().forEach(each -> {
                if (each < ' ' || each == '"' || each == '\\') {
                    quoted.append(String.format("\\u%04x", each));
                } else {
                    quoted.append((char) each);
                }
            });
            return quoted.append('"').toString();
        }

        Object value() {
            switch (next()) {
                case '{':
                    return object();
                case '[':
                    return array();
                case '"':
                    return string();
                case 't':
                    return word("true", true);
                case 'f':
                    return word("false", false);
                case 'n':
                    return word("null", null);
                default:
                    return number();
            }
        }

        private char next() {
            while (Character.isWhitespace(text.charAt(at))) {
                at++;
            }
            return text.charAt(at);
        }

        private boolean goesOn(char end) {
            var found = next();
            if (found == ',') {
                at++;
                return true;
            }
            if (found != end) {
                throw new IllegalStateException("no JSON: " + text);
            }
            at++;
            return false;
        }

        private Map<String, Object> object() {
            var all = new LinkedHashMap<String, Object>();
            at++;
            if (next() == '}') {
                at++;
                return all;
            }
            do {
                next();
                var key = string();
                next();
                at++; // the colon
                all.put(key, value());
            } while (goesOn('}'));
            return all;
        }

        private List<Object> array() {
            var all = new ArrayList<Object>();
            at++;
            if (next() == ']') {
                at++;
                return all;
            }
            do {
                all.add(value());
            } while (goesOn(']'));
            return all;
        }

        private String string() {
            var all = new StringBuilder();
            for (at++; text.charAt(at) != '"'; at++) {
                var each = text.charAt(at);
                if (each != '\\') {
                    all.append(each);
                    continue;
                }
                each = text.charAt(++at);
                if (each == 'u') {
                    all.append((char) Integer.parseInt(text.substring(at + 1, at + 5), 16));
                    at += 4;
                } else {
                    var index = "bfnrt".indexOf(each);
                    all.append(index < 0 ? each : "\b\f\n\r\t".charAt(index));
                }
            }
            at++;
            return all.toString();
        }

        private Object number() {
            var start = at;
            while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) {
                at++;
            }
            var digits = text.substring(start, at);
            if (digits.matches("-?[0-9]{1,18}")) {
                return Long.valueOf(digits);
            }
            return Double.valueOf(digits);
        }

        private Object word(String word, Object value) {
            if (!text.startsWith(word, at)) {
                throw new IllegalStateException("no JSON: " + text);
            }
            at += word.length();
            return value;
        }
    }
}
