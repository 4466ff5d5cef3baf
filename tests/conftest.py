"""For all tests: Hypothesis does not judge by time. A busy machine is no failure."""

from hypothesis import HealthCheck, settings

settings.register_profile("leveret", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("leveret")
