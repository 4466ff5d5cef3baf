#include "session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <amqp_framing.h>

#include "values.h"

struct connection *connections;
cJSON *events;
static cJSON *failure;

/* What happened, for `wait`; `what` is NULL or becomes part of it. */
static void happened(const char *event, const struct connection *where, const struct channel *channel, cJSON *what) {
    what = what ? what : cJSON_CreateObject();
    cJSON_AddStringToObject(what, "event", event);
    cJSON_AddStringToObject(what, "connection", where->name);
    cJSON_AddItemToObject(what, "channel", channel ? cJSON_CreateString(channel->name) : cJSON_CreateNull());
    cJSON_AddItemToArray(events, what);
}

static cJSON *close_of(const char *scope, int code, amqp_bytes_t text) {
    cJSON *said = cJSON_CreateObject();
    cJSON_AddStringToObject(said, "scope", scope);
    cJSON_AddNumberToObject(said, "code", code);
    say_text(said, "text", text);
    return said;
}

static void failed(cJSON *why) {
    cJSON_Delete(failure);
    failure = why;
}

cJSON *fail(const char *scope, int code, const char *text) {
    failed(close_of(scope, code, amqp_cstring_bytes(text)));
    return NULL;
}

cJSON *take_failure(void) {
    cJSON *why = failure;
    failure = NULL;
    return why;
}

static void closed(const struct connection *where, const struct channel *channel, const char *scope, int code,
                   amqp_bytes_t text) {
    happened("closed", where, channel, close_of(scope, code, text));
    failed(close_of(scope, code, text));
}

/* The broker's close of a channel or the connection: answered, and noted. */
static void close_method(struct connection *where, struct channel *channel, amqp_method_t method) {
    if (method.id == AMQP_CHANNEL_CLOSE_METHOD) {
        amqp_channel_close_t *said = method.decoded;
        amqp_channel_close_ok_t ok = {0};
        amqp_send_method(where->state, channel->number, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
        closed(where, channel, "channel", said->reply_code, said->reply_text);
    } else {
        amqp_connection_close_t *said = method.decoded;
        amqp_connection_close_ok_t ok = {0};
        amqp_send_method(where->state, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &ok);
        where->is_open = false;
        closed(where, NULL, "connection", said->reply_code, said->reply_text);
    }
}

cJSON *lost(struct connection *where, int status) {
    if (where->is_open) {
        where->is_open = false;
        closed(where, NULL, "lost", 0, amqp_cstring_bytes(amqp_error_string2(status)));
    }
    return NULL;
}

bool is_well(struct connection *where, struct channel *channel, amqp_rpc_reply_t reply) {
    if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION) {
        close_method(where, channel, reply.reply);
    } else if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION) {
        lost(where, reply.library_error);
    }
    return reply.reply_type == AMQP_RESPONSE_NORMAL;
}

cJSON *answered(struct connection *where, struct channel *channel) {
    return is_well(where, channel, amqp_get_rpc_reply(where->state)) ? cJSON_CreateObject() : NULL;
}

cJSON *sent(struct connection *where, int status) {
    return status == AMQP_STATUS_OK ? cJSON_CreateObject() : lost(where, status);
}

static struct channel *numbered(const struct connection *where, amqp_channel_t number) {
    struct channel *one = where->channels;
    while (one && one->number != number) {
        one = one->next;
    }
    return one;
}

bool read_content(struct connection *where, struct channel *channel, cJSON *what) {
    amqp_message_t message;
    if (!is_well(where, channel, amqp_read_message(where->state, channel->number, &message, 0))) {
        return false;
    }
    say_content(what, &message);
    amqp_destroy_message(&message);
    return true;
}

/* Confirms one by one, `multiple` taken apart. */
static void confirmed(const struct connection *where, struct channel *channel, uint64_t tag, bool multiple, bool ack) {
    for (uint64_t seq = multiple ? 1 : tag; channel->settled && seq <= tag && seq <= channel->published; seq++) {
        if (!channel->settled[seq]) {
            channel->settled[seq] = 1;
            cJSON *what = cJSON_CreateObject();
            cJSON_AddNumberToObject(what, "seq", (double)seq);
            cJSON_AddBoolToObject(what, "ack", ack);
            happened("confirm", where, channel, what);
        }
    }
}

/* A method that nobody has asked for. */
static void heard(struct connection *where, const amqp_frame_t *frame) {
    struct channel *channel = numbered(where, frame->channel);
    amqp_method_t method = frame->payload.method;
    cJSON *what = cJSON_CreateObject();
    switch (method.id) {
        case AMQP_BASIC_DELIVER_METHOD: {
            amqp_basic_deliver_t *deliver = method.decoded;
            say_text(what, "consumer_tag", deliver->consumer_tag);
            SAY_DELIVERY(what, deliver);
            if (read_content(where, channel, what)) {
                happened("delivery", where, channel, what);
                return;
            }
            break;
        }
        case AMQP_BASIC_RETURN_METHOD: {
            amqp_basic_return_t *returned = method.decoded;
            cJSON_AddNumberToObject(what, "code", returned->reply_code);
            say_text(what, "text", returned->reply_text);
            say_text(what, "exchange", returned->exchange);
            say_text(what, "routing_key", returned->routing_key);
            if (read_content(where, channel, what)) {
                happened("return", where, channel, what);
                return;
            }
            break;
        }
        case AMQP_BASIC_ACK_METHOD: {
            amqp_basic_ack_t *ack = method.decoded;
            confirmed(where, channel, ack->delivery_tag, ack->multiple, true);
            break;
        }
        case AMQP_BASIC_NACK_METHOD: {
            amqp_basic_nack_t *nack = method.decoded;
            confirmed(where, channel, nack->delivery_tag, nack->multiple, false);
            break;
        }
        case AMQP_BASIC_CANCEL_METHOD:
            say_text(what, "consumer_tag", ((amqp_basic_cancel_t *)method.decoded)->consumer_tag);
            happened("cancel", where, channel, what);
            return;
        case AMQP_CONNECTION_BLOCKED_METHOD:
            say_text(what, "reason", ((amqp_connection_blocked_t *)method.decoded)->reason);
            happened("blocked", where, NULL, what);
            return;
        case AMQP_CONNECTION_UNBLOCKED_METHOD: happened("unblocked", where, NULL, what); return;
        case AMQP_CHANNEL_CLOSE_METHOD:
        case AMQP_CONNECTION_CLOSE_METHOD: close_method(where, channel, method); break;
        default: break;
    }
    cJSON_Delete(what);
}

struct timeval duration(double seconds) {
    struct timeval length = {.tv_sec = (time_t)seconds};
    length.tv_usec = (suseconds_t)(fmod(seconds, 1) * 1e6);
    return length;
}

void pump(struct connection *where, double seconds) {
    struct timeval limit = duration(seconds);
    amqp_frame_t frame;
    if (!where || !where->is_open) {
        usleep((useconds_t)(seconds * 1e6));
        return;
    }
    int status = amqp_simple_wait_frame_noblock(where->state, &frame, &limit);
    if (status == AMQP_STATUS_OK && frame.frame_type == AMQP_FRAME_METHOD) {
        heard(where, &frame);
    } else if (status != AMQP_STATUS_OK && status != AMQP_STATUS_TIMEOUT) {
        lost(where, status);
    }
}

struct connection *connection_of(const cJSON *request) {
    struct connection *one = connections;
    while (one && strcmp(one->name, cstring_of(request, "connection", "")) != 0) {
        one = one->next;
    }
    return one;
}

struct channel *channel_of(const struct connection *where, const cJSON *request) {
    struct channel *one = where ? where->channels : NULL;
    while (one && strcmp(one->name, cstring_of(request, "channel", "")) != 0) {
        one = one->next;
    }
    return one;
}

void forget(struct connection *where) {
    struct connection **link = &connections;
    while (*link != where) {
        link = &(*link)->next;
    }
    *link = where->next;
    for (struct channel *one = where->channels, *next; one; one = next) {
        next = one->next;
        free(one->settled);
        free(one->name);
        free(one);
    }
    amqp_destroy_connection(where->state);
    free(where->name);
    free(where);
}

