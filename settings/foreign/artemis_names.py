"""Names in the files of Artemis and HornetQ: keys of ours, and names without a counterpart.

Source: address-settings page 6.1; the element names of artemis-configuration.xsd and hornetq-configuration.xsd.
"""

from ..rows.address_settings import bean_name
from ..rows.broker_keys import KEYS, Key

#: Element -> the key of [broker] that has its name.
GLOBALS: dict[str, Key] = {name: key for name, key in KEYS["broker"].items() if key.is_foreign}

_ELEMENTS = """
name system-property-prefix resolve-protocols journal-datasync persistence-enabled
scheduled-thread-pool-max-size thread-pool-max-size graceful-shutdown-enabled graceful-shutdown-timeout
security-enabled security-invalidation-interval journal-lock-acquisition-timeout wild-card-routing-enabled
management-address management-notification-address cluster-user cluster-password password-codec mask-password
log-delegate-factory-class-name jmx-management-enabled jmx-domain jmx-use-broker-name message-counter-enabled
message-counter-sample-period message-counter-max-day-history connection-ttl-override
connection-ttl-check-interval async-connection-execution-enabled transaction-timeout
transaction-timeout-scan-period message-expiry-thread-priority remoting-incoming-interceptors
remoting-outgoing-interceptors populate-validated-user connectors acceptors broadcast-groups discovery-groups
bridges ha-policy cluster-connections grouping-handler paging-directory bindings-directory create-bindings-dir
page-max-concurrent-io read-whole-page journal-directory create-journal-dir journal-type journal-buffer-timeout
journal-device-block-size journal-buffer-size journal-sync-transactional journal-sync-non-transactional
log-journal-write-rate journal-file-size journal-min-files journal-pool-files journal-compact-percentage
journal-compact-min-files journal-max-io journal-file-open-timeout journal-max-atticfiles
journal-retention-directory node-manager-lock-directory journal-large-messages-directory perf-blast-pages
run-sync-speed-test server-dump-interval max-disk-usage min-disk-free disk-scan-period memory-warning-threshold
memory-measure-interval large-messages-directory store critical-analyzer critical-analyzer-timeout
critical-analyzer-check-period critical-analyzer-policy page-sync-timeout security-settings broker-plugins
metrics metrics-plugin resource-limit-settings connector-services federations broker-connections
amqp-use-core-subscription-naming network-check-NIC network-check-URL-list network-check-list
network-check-period network-check-timeout network-check-ping-command network-check-ping6-command
authentication-cache-size authorization-cache-size auto-delete-queues-check-period
suppress-session-notifications temporary-queue-namespace reject-management-attributes management-message-rbac
management-rbac-prefix view-permission-method-match-pattern global-max-size-percent-of-jvm-max-memory
purge-page-folders mirror-ack-manager-queue-attempts mirror-ack-manager-page-attempts
mirror-ack-manager-retry-delay mirror-page-transaction broker-session-lock-timeout literal-match-marker
jaas-configs lock-coordinators initial-queue-buffer-size large-message-sync clustered file-deployment-enabled
backup allow-failback failback-delay failover-on-shutdown shared-store live-connector-ref remoting-interceptors
check-for-live-server backup-group-name replication-clustername max-saved-replicated-journals-size scale-down
async-connection-execution connection-factory queue-factory connection-factories jndi jms
backup-connector-ref backup-servers broker-balancers connection-routers failback-connectors journal-aio-buffer-size
journal-aio-buffer-timeout journal-aio-flush-on-sync journal-max-aio management-cluster-password
management-cluster-user management-request-timeout mirror-ack-manager-warn-unacked mqtt-session-scan-interval
mqtt-session-state-persistence-timeout mqtt-subscription-persistence-enabled queue-activation-timeout
reject-empty-validated-user resolveProtocols scale-down-clustername scale-down-group-name
"""

#: Children of <address-setting> in HornetQ's first versions that have no counterpart.
SETTINGS_WITHOUT_EFFECT = frozenset(("clustered", "distribution-policy-class"))

#: Children of <core> (Artemis) or <configuration> (HornetQ) that have no counterpart: one warning each.
WITHOUT_EFFECT: frozenset[str] = frozenset(_ELEMENTS.split())

_WILDFLY = "a file of WildFly or JBoss: only its <subsystem> for messaging is about a broker"

#: Roots of related files -> their description.
OTHER_FILES: dict[str, str] = {
    **dict.fromkeys(("server", "domain", "host", "subsystem", "hornetq-server", "messaging-deployment"), _WILDFLY),
    "management-context": "Artemis' management.xml, which is about JMX",
    "deployment": "HornetQ's hornetq-beans.xml, which starts a server",
    "user": "HornetQ's hornetq-users.xml",
    "defaultuser": "HornetQ's hornetq-users.xml",
    "project": "Maven's pom.xml",
    "Configure": "a file of Jetty, a web server",
    "connector": "a resource adapter's ra.xml",
    "restrict": "a jolokia-access.xml, which is about JMX",
    "config": "a file of JGroups, which finds the members of a cluster",
}
#: The namespace of Artemis' bootstrap.xml, whose root is <broker>, as in files of ActiveMQ 5.
BOOTSTRAP = "http://activemq.apache.org/schema"
BOOTSTRAP_FILE = "Artemis' bootstrap.xml, which starts a server"

_BEANS = """
acceptorConfigurations connectorConfigurations broadcastGroupConfigurations discoveryGroupConfigurations
bridgeConfigurations clusterConfigurations securitySettings securityRoles AMQPConnections AMQPConnection
brokerPlugins metricsConfiguration resourceLimitSettings connectorServiceConfigurations federationConfigurations
HAPolicyConfiguration jaasConfigs groupingHandlerConfiguration storeConfiguration connectionRouters
criticalAnalyzer lockCoordinatorConfigurations
"""

#: First parts of broker properties without a counterpart: the elements above in camel case, and these.
BEANS_WITHOUT_EFFECT: frozenset[str] = frozenset(map(bean_name, WITHOUT_EFFECT)) | frozenset(_BEANS.split())
