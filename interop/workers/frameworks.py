"""The task frameworks with pinned versions, each in its own environment."""

from __future__ import annotations

#: Framework -> the packages of its environment. Its application is `work_NAME.py` beside this file.
FRAMEWORKS = {
    "celery": ("celery==5.7.0", "kombu==5.7.0", "amqp==5.4.2", "billiard==4.3.2"),
    "dramatiq": ("dramatiq[rabbitmq]==2.2.1", "pika==1.4.4"),
    "faststream": ("faststream[rabbit,cli]==0.7.8", "aio-pika==10.2.1", "aiormq==7.2.4", "pamqp==4.0.1"),
    "taskiq": ("taskiq==0.13.0", "taskiq-aio-pika==0.6.1", "aio-pika==10.2.1", "aiormq==7.2.4", "pamqp==4.0.1"),
    "nameko": ("nameko==2.14.1", "kombu==5.7.0", "amqp==5.4.2", "eventlet==0.41.3"),
}
