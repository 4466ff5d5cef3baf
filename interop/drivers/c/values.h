/* What operations and answers say, as librabbitmq takes and gives it (../README.md). */
#ifndef VALUES_H
#define VALUES_H

#include <amqp.h>
#include <cjson/cJSON.h>

/* Fields of an operation; what it does not say is empty, 0 or what is given. Texts live as long as the operation. */
amqp_bytes_t text_of(const cJSON *request, const char *key);
const char *cstring_of(const cJSON *request, const char *key, const char *otherwise);
double number_of(const cJSON *request, const char *key);
amqp_boolean_t flag_of(const cJSON *request, const char *key, amqp_boolean_t otherwise);

/* A table with typed values, a body in base64, properties with headers: memory is the pool's. */
amqp_table_t table_of(const cJSON *typed, amqp_pool_t *pool);
amqp_bytes_t body_of(const cJSON *request, amqp_pool_t *pool);
amqp_basic_properties_t properties_of(const cJSON *request, amqp_pool_t *pool);

/* Adds a text (base64 where it is none) to an answer; and body, properties, headers of a message. */
void say_text(cJSON *answer, const char *key, amqp_bytes_t text);
void say_content(cJSON *answer, const amqp_message_t *message);

#endif
