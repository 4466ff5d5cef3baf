/* Driver for librabbitmq: operations as lines of JSON on stdin, observations on stdout (../README.md). */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <amqp.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>

#include "operations.h"
#include "session.h"
#include "values.h"

#define FRAME_MAX 131072
#define PUMP_SECONDS 0.05
/* librabbitmq asks for authentication_failure_close and leaves what it has no calls for to its user. */
#define CAPABILITIES                                                                                   \
    "{\"capabilities\":{\"F\":{\"consumer_cancel_notify\":{\"t\":true},\"connection.blocked\":{\"t\":true}," \
    "\"basic.nack\":{\"t\":true},\"publisher_confirms\":{\"t\":true}}}}"

static amqp_pool_t pool; /* what one operation says */

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* The first `count` events of a kind for a channel or its connection, taken out. */
static cJSON *wait_for(const cJSON *request) {
    struct connection *where = connection_of(request);
    const char *event = cstring_of(request, "event", ""), *channel = cstring_of(request, "channel", "");
    double deadline = now() + number_of(request, "seconds");
    int count = (int)number_of(request, "count");
    cJSON *answer = cJSON_CreateObject(), *found = cJSON_AddArrayToObject(answer, "events"), *next;
    for (;;) {
        for (cJSON *one = events->child; one && cJSON_GetArraySize(found) < count; one = next) {
            const char *its = cstring_of(one, "channel", channel); /* null: the connection's */
            next = one->next;
            if (!strcmp(cstring_of(one, "event", ""), event) && !strcmp(its, channel) &&
                !strcmp(cstring_of(one, "connection", ""), cstring_of(request, "connection", ""))) {
                cJSON_AddItemToArray(found, cJSON_DetachItemViaPointer(events, one));
            }
        }
        double left = deadline - now();
        if (cJSON_GetArraySize(found) >= count || left <= 0) {
            return answer;
        }
        pump(where, fmin(left, PUMP_SECONDS));
    }
}

static cJSON *reset(const cJSON *request) {
    struct timeval limit = duration(2);
    while (connections) {
        if (connections->is_open) {
            amqp_set_rpc_timeout(connections->state, &limit);
            amqp_connection_close(connections->state, AMQP_REPLY_SUCCESS);
        }
        forget(connections);
    }
    cJSON_Delete(events);
    events = cJSON_CreateArray();
    return cJSON_CreateObject();
}

static cJSON *connection_open(const cJSON *request) {
    struct connection *where = connection_of(request);
    if (where) {
        forget(where);
    }
    for (cJSON *one = events->child, *next; one; one = next) {
        next = one->next;
        if (!strcmp(cstring_of(one, "connection", ""), cstring_of(request, "connection", ""))) {
            cJSON_Delete(cJSON_DetachItemViaPointer(events, one));
        }
    }
    where = calloc(1, sizeof *where);
    where->name = strdup(cstring_of(request, "connection", ""));
    where->state = amqp_new_connection();
    where->is_open = true;
    where->next = connections;
    connections = where;
    const char *ca = cstring_of(request, "ca", NULL);
    amqp_socket_t *socket = ca ? amqp_ssl_socket_new(where->state) : amqp_tcp_socket_new(where->state);
    int status = ca ? amqp_ssl_socket_set_cacert(socket, ca) : AMQP_STATUS_OK;
    if (status == AMQP_STATUS_OK) {
        const char *host = ca ? "localhost" : cstring_of(request, "host", ""); /* whose certificate it is */
        status = amqp_socket_open(socket, host, (int)number_of(request, "port"));
    }
    if (status != AMQP_STATUS_OK) {
        return lost(where, status);
    }
    int frame_max = (int)number_of(request, "frame_max");
    cJSON *asked = cJSON_Parse(CAPABILITIES);
    amqp_table_t capabilities = table_of(asked, &pool);
    amqp_rpc_reply_t reply = amqp_login_with_properties(
        where->state, cstring_of(request, "vhost", ""), 0, frame_max ? frame_max : FRAME_MAX,
        (int)number_of(request, "heartbeat"), &capabilities, AMQP_SASL_METHOD_PLAIN, cstring_of(request, "user", ""),
        cstring_of(request, "password", ""));
    cJSON_Delete(asked);
    return is_well(where, NULL, reply) ? cJSON_CreateObject() : NULL;
}

static cJSON *connection_close(const cJSON *request) {
    struct connection *where = connection_of(request);
    bool well = is_well(where, NULL, amqp_connection_close(where->state, AMQP_REPLY_SUCCESS));
    where->is_open = false;
    return well ? cJSON_CreateObject() : NULL;
}

static cJSON *channel_open(const cJSON *request) {
    struct connection *where = connection_of(request);
    struct channel *channel = channel_of(where, request);
    if (!channel) {
        channel = calloc(1, sizeof *channel);
        channel->name = strdup(cstring_of(request, "channel", ""));
        channel->number = where->channels ? (amqp_channel_t)(where->channels->number + 1) : 1;
        channel->next = where->channels;
        where->channels = channel;
    }
    channel->confirms = false;
    channel->published = 0;
    amqp_channel_open(where->state, channel->number);
    return answered(where, channel);
}

static const struct {
    const char *name;
    cJSON *(*call)(const cJSON *request);
} OWN[] = {{"reset", reset}, {"wait", wait_for}, {"connection.open", connection_open},
           {"connection.close", connection_close}, {"channel.open", channel_open}};

static cJSON *done(const cJSON *request) {
    const char *name = cstring_of(request, "do", "");
    for (size_t i = 0; i < sizeof OWN / sizeof *OWN; i++) {
        if (!strcmp(OWN[i].name, name)) {
            return OWN[i].call(request);
        }
    }
    return operate(request, &pool);
}

static void say(cJSON *answer) {
    char *line = cJSON_PrintUnformatted(answer);
    puts(line);
    fflush(stdout);
    free(line);
    cJSON_Delete(answer);
}

int main(void) {
    cJSON *hello = cJSON_CreateObject(), *lacks;
    char *line = NULL;
    size_t room = 0;
    signal(SIGPIPE, SIG_IGN);
    init_amqp_pool(&pool, 4096);
    events = cJSON_CreateArray();
    cJSON_AddStringToObject(hello, "client", "librabbitmq");
    cJSON_AddStringToObject(hello, "version", amqp_version());
    cJSON_AddStringToObject(hello, "language", "C, gcc " __VERSION__);
    cJSON_AddArrayToObject(hello, "reads_not");
    lacks = cJSON_AddObjectToObject(hello, "lacks");
    cJSON_AddStringToObject(lacks, "connection.update-secret", "no such method");
    cJSON_AddStringToObject(lacks, "recover", "does not connect again by itself");
    say(hello);
    while (getline(&line, &room, stdin) > 0) {
        cJSON *request = cJSON_Parse(line), *answer = cJSON_CreateObject();
        cJSON_AddNumberToObject(answer, "id", number_of(request, "id"));
        cJSON *ok = done(request);
        if (ok) {
            cJSON_AddItemToObject(answer, "ok", ok);
        } else {
            cJSON_AddItemToObject(answer, "error", take_failure());
        }
        say(answer);
        cJSON_Delete(request);
        recycle_amqp_pool(&pool);
        for (struct connection *one = connections; one; one = one->next) {
            amqp_maybe_release_buffers(one->state);
        }
    }
    return 0;
}
