// What a test in Java does; prints "ok" at the end.

import java.util.List;
import java.util.Map;

final class Story {
    public static void main(String[] arguments) throws Exception {
        try (var broker = LeveretTest.start(); var shop = broker.newVhost()) {
            check(shop.url.startsWith("amqp://guest:guest@127.0.0.1:"));
            var order = Map.of("id", 7, "name", "h\u00e9 \"\\\n\u20ac");
            try {
                shop.call("inject", Map.of("routing_key", "orders", "json", order, "vhost", shop.vhost));
                check(false);
            } catch (IllegalArgumentException error) {
                check(error.getMessage().contains("no queue 'orders'")); // it was published all the same
            }
            var published = (Map<?, ?>) shop.published(Map.of()).get(0);
            check(published.get("routing_key").equals("orders"));
            shop.assertPublished(Map.of("routing_key", "orders", "body", order));
            shop.assertPublished(Map.of("body", Map.of("$partial", Map.of("id", 7))));
            shop.assertNotPublished(Map.of("routing_key", "invoices"));
            try {
                shop.assertQueue("orders", Map.of("ready", List.of("x")));
                check(false);
            } catch (LeveretTest.NotSo error) {
                check(error.getMessage().contains("no queue 'orders'"));
            }
            try {
                shop.call("asert_queue", Map.of());
                check(false);
            } catch (IllegalArgumentException error) {
                check(error.getMessage().contains("did you mean 'assert_queue'"));
            }
            broker.advance(Map.of("hours", 2));
            check(((Map<?, ?>) broker.call("clock", Map.of())).get("elapsed").equals(7200.0));
            shop.fault("block", Map.of()).run();
            shop.settled();
            shop.reset();
            check(shop.published(Map.of()).isEmpty());
        }
        System.out.println("ok");
    }

    private static void check(boolean holds) {
        if (!holds) {
            throw new IllegalStateException("not so");
        }
    }
}
