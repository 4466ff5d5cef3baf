#include "values.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <amqp_framing.h>

static const char BASE64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

amqp_bytes_t text_of(const cJSON *request, const char *key) {
    return amqp_cstring_bytes(cstring_of(request, key, ""));
}

const char *cstring_of(const cJSON *request, const char *key, const char *otherwise) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(request, key));
    return text ? text : otherwise;
}

double number_of(const cJSON *request, const char *key) {
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(request, key);
    return cJSON_IsNumber(number) ? number->valuedouble : 0;
}

amqp_boolean_t flag_of(const cJSON *request, const char *key, amqp_boolean_t otherwise) {
    const cJSON *flag = cJSON_GetObjectItemCaseSensitive(request, key);
    return cJSON_IsBool(flag) ? cJSON_IsTrue(flag) : otherwise;
}

static char *encode_base64(amqp_bytes_t octets) {
    const unsigned char *from = octets.bytes;
    char *encoded = malloc((octets.len + 2) / 3 * 4 + 1), *to = encoded;
    for (size_t i = 0; i < octets.len; i += 3) {
        size_t left = octets.len - i;
        unsigned long bits = (unsigned long)from[i] << 16;
        bits |= left > 1 ? (unsigned long)from[i + 1] << 8 : 0;
        bits |= left > 2 ? from[i + 2] : 0;
        *to++ = BASE64[bits >> 18];
        *to++ = BASE64[bits >> 12 & 63];
        *to++ = left > 1 ? BASE64[bits >> 6 & 63] : '=';
        *to++ = left > 2 ? BASE64[bits & 63] : '=';
    }
    *to = 0;
    return encoded;
}

static amqp_bytes_t decode_base64(const char *encoded, amqp_pool_t *pool) {
    size_t length = strcspn(encoded, "=");
    amqp_bytes_t octets = {length * 3 / 4, NULL};
    unsigned char *to = octets.bytes = amqp_pool_alloc(pool, octets.len + 1);
    unsigned long bits = 0;
    for (size_t i = 0; i < length; i++) {
        bits = bits << 6 | (unsigned long)(strchr(BASE64, encoded[i]) - BASE64);
        if (i % 4) {
            *to++ = (unsigned char)(bits >> (6 - 2 * (i % 4)));
        }
    }
    return octets;
}

/* Whether octets are UTF-8, and have no NUL, which a C string cannot hold. */
static bool is_text(amqp_bytes_t octets) {
    const unsigned char *at = octets.bytes, *end = at + octets.len;
    while (at < end) {
        int more = *at < 0x80 ? 0 : *at >> 5 == 6 ? 1 : *at >> 4 == 14 ? 2 : *at >> 3 == 30 ? 3 : -1;
        if (*at++ == 0 || more < 0 || end - at < more) {
            return false;
        }
        for (; more > 0; more--) {
            if (*at++ >> 6 != 2) {
                return false;
            }
        }
    }
    return true;
}

static cJSON *text_or_octets(amqp_bytes_t octets) {
    cJSON *said;
    if (is_text(octets)) {
        char *text = strndup(octets.bytes ? octets.bytes : "", octets.len);
        said = cJSON_CreateString(text);
        free(text);
    } else {
        char *encoded = encode_base64(octets);
        said = cJSON_CreateObject();
        cJSON_AddStringToObject(said, "x", encoded);
        free(encoded);
    }
    return said;
}

void say_text(cJSON *answer, const char *key, amqp_bytes_t text) {
    cJSON_AddItemToObject(answer, key, text_or_octets(text));
}

static amqp_field_value_t value_of(const cJSON *typed, amqp_pool_t *pool) {
    const cJSON *inner = typed->child;
    double number = inner->valuedouble;
    amqp_field_value_t value = {.kind = (uint8_t)inner->string[0]};
    switch (value.kind) {
        case AMQP_FIELD_KIND_BOOLEAN: value.value.boolean = cJSON_IsTrue(inner); break;
        case AMQP_FIELD_KIND_I8: value.value.i8 = (int8_t)number; break;
        case AMQP_FIELD_KIND_U8: value.value.u8 = (uint8_t)number; break;
        case AMQP_FIELD_KIND_I16: value.value.i16 = (int16_t)number; break;
        case AMQP_FIELD_KIND_U16: value.value.u16 = (uint16_t)number; break;
        case AMQP_FIELD_KIND_I32: value.value.i32 = (int32_t)number; break;
        case AMQP_FIELD_KIND_U32: value.value.u32 = (uint32_t)number; break;
        case AMQP_FIELD_KIND_I64: value.value.i64 = (int64_t)number; break;
        case AMQP_FIELD_KIND_U64:
        case AMQP_FIELD_KIND_TIMESTAMP: value.value.u64 = (uint64_t)number; break;
        case AMQP_FIELD_KIND_F32: value.value.f32 = (float)number; break;
        case AMQP_FIELD_KIND_F64: value.value.f64 = number; break;
        case AMQP_FIELD_KIND_DECIMAL:
            value.value.decimal.decimals = (uint8_t)inner->child->valuedouble;
            value.value.decimal.value = (uint32_t)inner->child->next->valuedouble;
            break;
        case AMQP_FIELD_KIND_UTF8: value.value.bytes = amqp_cstring_bytes(inner->valuestring); break;
        case AMQP_FIELD_KIND_BYTES: value.value.bytes = decode_base64(inner->valuestring, pool); break;
        case AMQP_FIELD_KIND_TABLE: value.value.table = table_of(inner, pool); break;
        case AMQP_FIELD_KIND_ARRAY: {
            amqp_array_t list = {cJSON_GetArraySize(inner), NULL};
            list.entries = amqp_pool_alloc(pool, sizeof(amqp_field_value_t) * (size_t)(list.num_entries + 1));
            for (int i = 0; i < list.num_entries; i++) {
                list.entries[i] = value_of(cJSON_GetArrayItem(inner, i), pool);
            }
            value.value.array = list;
            break;
        }
        default: value.kind = AMQP_FIELD_KIND_VOID;
    }
    return value;
}

amqp_table_t table_of(const cJSON *typed, amqp_pool_t *pool) {
    amqp_table_t table = {cJSON_GetArraySize(typed), NULL};
    table.entries = amqp_pool_alloc(pool, sizeof(amqp_table_entry_t) * (size_t)(table.num_entries + 1));
    int i = 0;
    const cJSON *one;
    cJSON_ArrayForEach(one, typed) {
        table.entries[i].key = amqp_cstring_bytes(one->string);
        table.entries[i++].value = value_of(one, pool);
    }
    return table;
}

amqp_bytes_t body_of(const cJSON *request, amqp_pool_t *pool) {
    return decode_base64(cstring_of(request, "body", ""), pool);
}

/* Texts among the properties, with their place in librabbitmq's record. */
#define TEXTS(one)                                                                                     \
    one(content_type, CONTENT_TYPE) one(content_encoding, CONTENT_ENCODING)                            \
    one(correlation_id, CORRELATION_ID) one(reply_to, REPLY_TO) one(expiration, EXPIRATION)            \
    one(message_id, MESSAGE_ID) one(type, TYPE) one(user_id, USER_ID) one(app_id, APP_ID)              \
    one(cluster_id, CLUSTER_ID)
#define NUMBERS(one)                                                                                   \
    one(delivery_mode, DELIVERY_MODE) one(priority, PRIORITY) one(timestamp, TIMESTAMP)

amqp_basic_properties_t properties_of(const cJSON *request, amqp_pool_t *pool) {
    const cJSON *said = cJSON_GetObjectItemCaseSensitive(request, "properties");
    const cJSON *headers = cJSON_GetObjectItemCaseSensitive(request, "headers");
    amqp_basic_properties_t properties;
    memset(&properties, 0, sizeof properties);
#define TAKE(name, FLAG, value)                                                                        \
    if (cJSON_HasObjectItem(said, #name)) {                                                            \
        properties._flags |= AMQP_BASIC_##FLAG##_FLAG;                                                 \
        properties.name = value;                                                                       \
    }
#define TAKE_TEXT(name, FLAG) TAKE(name, FLAG, text_of(said, #name))
#define TAKE_NUMBER(name, FLAG) TAKE(name, FLAG, (uint64_t)number_of(said, #name))
    TEXTS(TAKE_TEXT)
    NUMBERS(TAKE_NUMBER)
    if (headers) {
        properties._flags |= AMQP_BASIC_HEADERS_FLAG;
        properties.headers = table_of(headers, pool);
    }
    return properties;
}

static cJSON *plain_table(amqp_table_t table);

/* A value as librabbitmq gave it, for the answer. */
static cJSON *plain(const amqp_field_value_t *field) {
    cJSON *said;
    switch (field->kind) {
        case AMQP_FIELD_KIND_BOOLEAN: return cJSON_CreateBool(field->value.boolean);
        case AMQP_FIELD_KIND_I8: return cJSON_CreateNumber(field->value.i8);
        case AMQP_FIELD_KIND_U8: return cJSON_CreateNumber(field->value.u8);
        case AMQP_FIELD_KIND_I16: return cJSON_CreateNumber(field->value.i16);
        case AMQP_FIELD_KIND_U16: return cJSON_CreateNumber(field->value.u16);
        case AMQP_FIELD_KIND_I32: return cJSON_CreateNumber(field->value.i32);
        case AMQP_FIELD_KIND_U32: return cJSON_CreateNumber(field->value.u32);
        case AMQP_FIELD_KIND_I64: return cJSON_CreateNumber((double)field->value.i64);
        case AMQP_FIELD_KIND_U64: return cJSON_CreateNumber((double)field->value.u64);
        case AMQP_FIELD_KIND_F32: return cJSON_CreateNumber(field->value.f32);
        case AMQP_FIELD_KIND_F64: return cJSON_CreateNumber(field->value.f64);
        case AMQP_FIELD_KIND_UTF8:
        case AMQP_FIELD_KIND_BYTES: return text_or_octets(field->value.bytes);
        case AMQP_FIELD_KIND_TABLE: return plain_table(field->value.table);
        case AMQP_FIELD_KIND_TIMESTAMP:
            said = cJSON_CreateObject();
            cJSON_AddNumberToObject(said, "T", (double)field->value.u64);
            return said;
        case AMQP_FIELD_KIND_DECIMAL: {
            cJSON *decimal = cJSON_AddArrayToObject(said = cJSON_CreateObject(), "D");
            cJSON_AddItemToArray(decimal, cJSON_CreateNumber(field->value.decimal.decimals));
            cJSON_AddItemToArray(decimal, cJSON_CreateNumber((int32_t)field->value.decimal.value));
            return said;
        }
        case AMQP_FIELD_KIND_ARRAY:
            said = cJSON_CreateArray();
            for (int i = 0; i < field->value.array.num_entries; i++) {
                cJSON_AddItemToArray(said, plain(&field->value.array.entries[i]));
            }
            return said;
        default: return cJSON_CreateNull();
    }
}

static cJSON *plain_table(amqp_table_t table) {
    cJSON *said = cJSON_CreateObject();
    for (int i = 0; i < table.num_entries; i++) {
        char *key = strndup(table.entries[i].key.bytes, table.entries[i].key.len);
        cJSON_AddItemToObject(said, key, plain(&table.entries[i].value));
        free(key);
    }
    return said;
}

void say_content(cJSON *answer, const amqp_message_t *message) {
    const amqp_basic_properties_t *properties = &message->properties;
    char *body = encode_base64(message->body);
    cJSON_AddStringToObject(answer, "body", body);
    free(body);
    cJSON *said = cJSON_AddObjectToObject(answer, "properties");
#define SAY(name, FLAG, call)                                                                          \
    if (properties->_flags & AMQP_BASIC_##FLAG##_FLAG) {                                               \
        call;                                                                                          \
    }
#define SAY_TEXT(name, FLAG) SAY(name, FLAG, say_text(said, #name, properties->name))
#define SAY_NUMBER(name, FLAG) SAY(name, FLAG, cJSON_AddNumberToObject(said, #name, (double)properties->name))
    TEXTS(SAY_TEXT)
    NUMBERS(SAY_NUMBER)
    cJSON_AddItemToObject(answer, "headers", properties->_flags & AMQP_BASIC_HEADERS_FLAG
                                                 ? plain_table(properties->headers)
                                                 : cJSON_CreateNull());
}
