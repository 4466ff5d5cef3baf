/* Operations on a channel, each the one call of librabbitmq that it is named after. */
#include "operations.h"

#include <stdlib.h>
#include <string.h>

#include <amqp_framing.h>

#include "session.h"
#include "values.h"

#define CALL (struct connection *where, struct channel *channel, const cJSON *request, amqp_pool_t *pool)
#define AT where->state, channel->number
#define TEXT(key) text_of(request, key)
#define FLAG(key) flag_of(request, key, 0)
#define TAG (uint64_t)number_of(request, "delivery_tag")
#define REQUEUE flag_of(request, "requeue", 1)
#define TABLE table_of(cJSON_GetObjectItemCaseSensitive(request, "arguments"), pool)

/* A call whose answer says nothing. */
#define PLAIN(name, call)              \
    static cJSON *name CALL {          \
        call;                          \
        return answered(where, channel); \
    }

PLAIN(exchange_declare,
      amqp_exchange_declare(AT, TEXT("exchange"), amqp_cstring_bytes(cstring_of(request, "type", "direct")),
                            FLAG("passive"), FLAG("durable"), FLAG("auto_delete"), FLAG("internal"), TABLE))
PLAIN(exchange_delete, amqp_exchange_delete(AT, TEXT("exchange"), FLAG("if_unused")))
PLAIN(exchange_bind, amqp_exchange_bind(AT, TEXT("destination"), TEXT("source"), TEXT("routing_key"), TABLE))
PLAIN(exchange_unbind, amqp_exchange_unbind(AT, TEXT("destination"), TEXT("source"), TEXT("routing_key"), TABLE))
PLAIN(queue_bind, amqp_queue_bind(AT, TEXT("queue"), TEXT("exchange"), TEXT("routing_key"), TABLE))
PLAIN(queue_unbind, amqp_queue_unbind(AT, TEXT("queue"), TEXT("exchange"), TEXT("routing_key"), TABLE))
PLAIN(basic_qos, amqp_basic_qos(AT, (uint32_t)number_of(request, "prefetch_size"),
                                (uint16_t)number_of(request, "prefetch_count"), FLAG("global")))
PLAIN(basic_cancel, amqp_basic_cancel(AT, TEXT("consumer_tag")))
PLAIN(basic_recover, amqp_basic_recover(AT, REQUEUE))
PLAIN(tx_select, amqp_tx_select(AT))
PLAIN(tx_commit, amqp_tx_commit(AT))
PLAIN(tx_rollback, amqp_tx_rollback(AT))

static cJSON *channel_close CALL {
    return is_well(where, channel, amqp_channel_close(AT, AMQP_REPLY_SUCCESS)) ? cJSON_CreateObject() : NULL;
}

static cJSON *channel_flow CALL {
    amqp_channel_flow_ok_t *ok = amqp_channel_flow(AT, FLAG("active"));
    cJSON *answer = answered(where, channel);
    if (answer) {
        cJSON_AddBoolToObject(answer, "active", ok->active);
    }
    return answer;
}

static cJSON *queue_declare CALL {
    amqp_queue_declare_ok_t *ok = amqp_queue_declare(AT, TEXT("queue"), FLAG("passive"), FLAG("durable"),
                                                     FLAG("exclusive"), FLAG("auto_delete"), TABLE);
    cJSON *answer = answered(where, channel);
    if (answer) {
        say_text(answer, "queue", ok->queue);
        cJSON_AddNumberToObject(answer, "message_count", ok->message_count);
        cJSON_AddNumberToObject(answer, "consumer_count", ok->consumer_count);
    }
    return answer;
}

static cJSON *counted(cJSON *answer, const uint32_t *count) {
    if (answer) {
        cJSON_AddNumberToObject(answer, "message_count", *count);
    }
    return answer;
}

static cJSON *queue_purge CALL {
    amqp_queue_purge_ok_t *ok = amqp_queue_purge(AT, TEXT("queue"));
    return counted(answered(where, channel), ok ? &ok->message_count : NULL);
}

static cJSON *queue_delete CALL {
    amqp_queue_delete_ok_t *ok = amqp_queue_delete(AT, TEXT("queue"), FLAG("if_unused"), FLAG("if_empty"));
    return counted(answered(where, channel), ok ? &ok->message_count : NULL);
}

static cJSON *basic_consume CALL {
    amqp_basic_consume_ok_t *ok =
        amqp_basic_consume(AT, TEXT("queue"), TEXT("consumer_tag"), 0, FLAG("no_ack"), FLAG("exclusive"), TABLE);
    cJSON *answer = answered(where, channel);
    if (answer) {
        say_text(answer, "consumer_tag", ok->consumer_tag);
    }
    return answer;
}

static cJSON *basic_publish CALL {
    amqp_basic_properties_t properties = properties_of(request, pool);
    if (channel->confirms) {
        channel->settled = realloc(channel->settled, ++channel->published + 1);
        channel->settled[channel->published] = 0;
    }
    return sent(where, amqp_basic_publish(AT, TEXT("exchange"), TEXT("routing_key"), FLAG("mandatory"),
                                          FLAG("immediate"), &properties, body_of(request, pool)));
}

static cJSON *basic_get CALL {
    amqp_rpc_reply_t reply = amqp_basic_get(AT, TEXT("queue"), FLAG("no_ack"));
    if (!is_well(where, channel, reply)) {
        return NULL;
    }
    cJSON *answer = cJSON_CreateObject();
    if (reply.reply.id == AMQP_BASIC_GET_EMPTY_METHOD) {
        cJSON_AddBoolToObject(answer, "empty", 1);
        return answer;
    }
    amqp_basic_get_ok_t *ok = reply.reply.decoded;
    cJSON_AddNumberToObject(answer, "message_count", ok->message_count);
    SAY_DELIVERY(answer, ok);
    if (!read_content(where, channel, answer)) {
        cJSON_Delete(answer);
        return NULL;
    }
    return answer;
}

static cJSON *basic_ack CALL { return sent(where, amqp_basic_ack(AT, TAG, FLAG("multiple"))); }

static cJSON *basic_nack CALL { return sent(where, amqp_basic_nack(AT, TAG, FLAG("multiple"), REQUEUE)); }

static cJSON *basic_reject CALL { return sent(where, amqp_basic_reject(AT, TAG, REQUEUE)); }

static cJSON *basic_recover_async CALL {
    amqp_basic_recover_async_t method = {REQUEUE};
    return sent(where, amqp_send_method(AT, AMQP_BASIC_RECOVER_ASYNC_METHOD, &method));
}

static cJSON *confirm_select CALL {
    amqp_confirm_select(AT);
    channel->confirms = true;
    return answered(where, channel);
}

static const struct {
    const char *name;
    cJSON *(*call)CALL;
} OPERATIONS[] = {
    {"channel.close", channel_close},
    {"channel.flow", channel_flow},
    {"exchange.declare", exchange_declare},
    {"exchange.delete", exchange_delete},
    {"exchange.bind", exchange_bind},
    {"exchange.unbind", exchange_unbind},
    {"queue.declare", queue_declare},
    {"queue.bind", queue_bind},
    {"queue.unbind", queue_unbind},
    {"queue.purge", queue_purge},
    {"queue.delete", queue_delete},
    {"basic.qos", basic_qos},
    {"basic.consume", basic_consume},
    {"basic.cancel", basic_cancel},
    {"basic.publish", basic_publish},
    {"basic.get", basic_get},
    {"basic.ack", basic_ack},
    {"basic.nack", basic_nack},
    {"basic.reject", basic_reject},
    {"basic.recover", basic_recover},
    {"basic.recover-async", basic_recover_async},
    {"confirm.select", confirm_select},
    {"tx.select", tx_select},
    {"tx.commit", tx_commit},
    {"tx.rollback", tx_rollback},
};

cJSON *operate(const cJSON *request, amqp_pool_t *pool) {
    struct connection *where = connection_of(request);
    struct channel *channel = channel_of(where, request);
    if (!where || !channel || !where->is_open) {
        return fail("client", 0, "the connection or channel is not open");
    }
    for (size_t i = 0; i < sizeof OPERATIONS / sizeof *OPERATIONS; i++) {
        if (!strcmp(OPERATIONS[i].name, cstring_of(request, "do", ""))) {
            return OPERATIONS[i].call(where, channel, request, pool);
        }
    }
    return fail("client", 0, "no such operation");
}
