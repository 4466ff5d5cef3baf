#ifndef OPERATIONS_H
#define OPERATIONS_H

#include <amqp.h>
#include <cjson/cJSON.h>

/* Does an operation on a channel; {} and what the broker said, or NULL and the failure. Memory is the pool's. */
cJSON *operate(const cJSON *request, amqp_pool_t *pool);

#endif
