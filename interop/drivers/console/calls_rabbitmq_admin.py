"""Calls of rabbitmq-admin that create and delete all kinds of objects."""

from calls import NODE, URL, check, only
from rabbitmq_admin import AdminAPI

api = AdminAPI(url=URL, auth=("guest", "guest"))
wrong = AdminAPI(url=URL, auth=("guest", "wrong"))

check("overview", api.overview, facts=lambda answer: answer["object_totals"])
check("overview with a wrong password", wrong.overview, raises="HTTPError")
check("get_cluster_name", api.get_cluster_name)
check("list_nodes", api.list_nodes, facts=only("name", "running"))
check("get_node", api.get_node, NODE, memory=True, facts=only("name", "type", "running"))
check("list_extensions", api.list_extensions, facts=lambda answer: answer[0])
check("whoami", api.whoami)
check("create_vhost", api.create_vhost, "admin")
check("list_vhosts", api.list_vhosts, facts=only("name", "tracing"))
check("get_vhost", api.get_vhost, "admin", facts=only("name", "cluster_state"))
check("create_user", api.create_user, "one", "secret", tags=["administrator"])
check("get_user", api.get_user, "one", facts=only("name", "tags", "limits"))
check("create_user_permission", api.create_user_permission, "one", "admin")
check("create_user_permission of guest", api.create_user_permission, "guest", "admin")
check("get_user_permission", api.get_user_permission, "admin", "one")
check("list_user_permissions", api.list_user_permissions, "one")
EXCHANGE = {"type": "direct", "auto_delete": False, "durable": False, "internal": False, "arguments": {}}
check("create_exchange_for_vhost", api.create_exchange_for_vhost, "x", "admin", EXCHANGE)
check("get_exchange_for_vhost", api.get_exchange_for_vhost, "x", "admin", facts=only("name", "type", "incoming"))
check("list_exchanges_for_vhost", api.list_exchanges_for_vhost, "admin", facts=only("name", "durable"))
check("list_bindings_for_vhost", api.list_bindings_for_vhost, "admin")
check("delete_exchange_for_vhost", api.delete_exchange_for_vhost, "x", "admin", if_unused=True)
check("create_policy_for_vhost", api.create_policy_for_vhost, "admin", "p", {"max-length": 5}, "^a", 0, "queues")
check("get_policy_for_vhost", api.get_policy_for_vhost, "admin", "p")
check("delete_policy_for_vhost", api.delete_policy_for_vhost, "admin", "p")
check("is_vhost_alive", api.is_vhost_alive, "admin")
check("list_connections", api.list_connections, facts=only("user", "state", "client_properties"))
name = api.list_connections()[0]["name"]
check("list_connection_channels", api.list_connection_channels, name, facts=only("number", "vhost"))
check(
    "list_consumers_for_vhost", api.list_consumers_for_vhost, "/", facts=only("consumer_tag", "ack_required", "active")
)
definitions = check("get_definitions", api.get_definitions, facts=sorted)
check("post_definitions", api.post_definitions, definitions)
check("delete_connection", api.delete_connection, name, "for a test")
check("delete_user_permission", api.delete_user_permission, "one", "admin")
check("delete_user", api.delete_user, "one")
check("delete_vhost", api.delete_vhost, "admin")
