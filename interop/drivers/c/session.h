/* Connections and channels by the names that operations give them, and what happens on them. */
#ifndef SESSION_H
#define SESSION_H

#include <stdbool.h>
#include <sys/time.h>

#include <amqp.h>
#include <cjson/cJSON.h>

struct channel {
    struct channel *next;
    char *name;
    amqp_channel_t number;
    bool confirms;
    uint64_t published;     /* counted from confirm.select on */
    unsigned char *settled; /* by sequence number, which counts from 1 */
};

struct connection {
    struct connection *next;
    char *name;
    amqp_connection_state_t state;
    bool is_open;
    struct channel *channels; /* the newest, which has the highest number, first */
};

extern struct connection *connections;
extern cJSON *events;

struct connection *connection_of(const cJSON *request);
struct channel *channel_of(const struct connection *where, const cJSON *request);
void forget(struct connection *where);

/* The operation has failed, with a close's scope, code and text; NULL, its answer. `take_failure` is what it said. */
cJSON *fail(const char *scope, int code, const char *text);
cJSON *take_failure(void);

/* Whether a call went well; a close by the broker is answered, and an event. */
bool is_well(struct connection *where, struct channel *channel, amqp_rpc_reply_t reply);
/* {} or a failure: for calls whose reply librabbitmq keeps, for those that are only sent, for a broken line. */
cJSON *answered(struct connection *where, struct channel *channel);
cJSON *sent(struct connection *where, int status);
cJSON *lost(struct connection *where, int status);

/* Body, properties and headers, which follow a method that has been read. */
bool read_content(struct connection *where, struct channel *channel, cJSON *what);

/* Let the client read one frame, for at most that long; what it tells becomes events. */
void pump(struct connection *where, double seconds);
struct timeval duration(double seconds);

#define SAY_DELIVERY(what, method)                                                                     \
    cJSON_AddNumberToObject(what, "delivery_tag", (double)(method)->delivery_tag);                     \
    cJSON_AddBoolToObject(what, "redelivered", (method)->redelivered);                                 \
    say_text(what, "exchange", (method)->exchange);                                                    \
    say_text(what, "routing_key", (method)->routing_key)

#endif
