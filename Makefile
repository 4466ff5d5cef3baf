# `make serve` and `make test` are the whole set-up: both make .venv from what Python they find.
# Python: the distribution's own build first (profile-guided, 10 to 40 % faster than one compiled without it),
# then whatever python3 is on the PATH. Override with `make PYTHON=/path/to/python serve`.
PYTHON ?= $(shell for p in /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: redeclarations test-clients-cluster bench-clients-cluster cluster-agreement cluster cluster-node cluster-rounds test-cluster test-long test-rabbitmq test-toolchains mutants mutants-map stories image-test dashboards serve test browser machines tools spark spark-cluster object-stores three-brokers whatif-stories bench-pipeline lint types check-python peers bench bench-quick bench-queues bench-deep bench-curves bench-cluster clients interop artemis differential workers frameworks fuzz soak crash crash-objects simulate simulate-cluster simulate-planted changelog dist wheel clean

check-python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer with its venv module is needed (Debian: apt install python3-venv)." >&2; exit 1; }

# The broker alone: trio and pamqp.
$(VENV)/.serve: pyproject.toml | check-python
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

# What the tests need on top. Nothing is compiled ahead: most modules of these packages are never imported, and all would
# take 20 s.
$(VENV)/.dev: pyproject.toml | check-python
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[dev]'
	@touch $(VENV)/.serve $@

# What the data pipeline needs on top: half a gigabyte of Spark, worth it where there is a Java to run it.
$(VENV)/.spark: pyproject.toml | $(VENV)/.dev
	@if [ -n "$$JAVA_HOME" ] || command -v java >/dev/null 2>&1; then \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --use-pep517 -e '.[dev,spark]' \
		|| echo "Spark could not be installed; the tests that need it will skip." >&2; \
	else echo "No Java: the tests that need Spark will skip (Debian: apt install openjdk-17-jre-headless)." >&2; fi
	@touch $(VENV)/.dev $@

# What drives a browser, where there is one.
$(VENV)/.browser: pyproject.toml | $(VENV)/.dev
	@if command -v chromium >/dev/null 2>&1; then \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[dev,dev-browser]'; \
	else echo "No Chromium: the tests of the page will skip (Debian: apt install chromium)." >&2; fi
	@touch $@

# All of that at once, which is a third quicker; one after another where that fails, so that its tests skip.
$(VENV)/.test: pyproject.toml | check-python
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@java=; if [ -n "$$JAVA_HOME" ] || command -v java >/dev/null 2>&1; then java=,spark; fi; \
	browser=; if command -v chromium >/dev/null 2>&1; then browser=,dev-browser; fi; \
	if [ "$$java$$browser" = ,spark,dev-browser ] && $(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--no-compile --use-pep517 -e '.[dev,spark,dev-browser]'; \
	then touch $(VENV)/.serve $(VENV)/.dev $(VENV)/.spark $(VENV)/.browser; \
	else $(MAKE) --no-print-directory $(VENV)/.spark $(VENV)/.browser; fi
	@touch $@

serve: $(VENV)/.serve
	@exec $(BIN)/leveret serve $(ARGS)

# Three nodes and three members of etcd on loopback, until Ctrl-C (docs/cluster.md). `make cluster-node NAME=b`, with the same
# CLUSTER_DIR, starts a node again that was killed. Needs etcd: `make peers`, or Debian's etcd-server alone.
CLUSTER_DIR ?=
CLUSTER = $(BIN)/python -P -m leveret.interop.brokers.local_cluster $(if $(CLUSTER_DIR),--directory "$(CLUSTER_DIR)")
cluster: $(VENV)/.serve
	@exec $(CLUSTER) $(ARGS)

cluster-node: $(VENV)/.serve
	@test -n "$(NAME)" -a -n "$(CLUSTER_DIR)" || { echo "which node, and of which cluster? make cluster-node NAME=b CLUSTER_DIR=DIR" >&2; exit 2; }
	@exec $(CLUSTER) --start "$(NAME)"

# Files are shared out among two processes more than there are cores: some wait for brokers that they started. `make test
# JOBS=0` runs one after another.
JOBS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 2)
# What is left out needs minutes and finds few faults in them: `make spark test-long test-rabbitmq test-toolchains` are the rest.
CHOSEN := not peer and not toolchain and not cluster and not long and (not spark or sample)
PYTEST = $(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
# Types are checked beside the tests. Modules of tests are compiled once before, with what pytest puts into assertions:
# each of its processes would do it again. So would each broker that a test starts where bytecode must not be written.
test: export PYTHONDONTWRITEBYTECODE =
test: $(VENV)/.test lint
	@$(MAKE) --no-print-directory types >$(VENV)/types.log 2>&1 & types=$$!; \
	$(BIN)/pytest --collect-only -qq -n 0 -p no:cacheprovider >/dev/null 2>&1; \
	$(PYTEST) -m "$(CHOSEN)" $(ARGS); tests=$$?; \
	wait $$types; types=$$?; cat $(VENV)/types.log; exit $$((tests | types))

# The tests that compare with a RabbitMQ, which each starts for itself; those that build programs in Go and Java.
test-rabbitmq: $(VENV)/.dev
	@$(PYTEST) -m peer $(ARGS)

# Rare failures of a cluster's nodes: disks that hang, are full or rot, clocks, older releases, partitions (needs etcd).
test-cluster: $(VENV)/.dev
	@$(PYTEST) -m cluster tests/cluster $(ARGS)

# What takes long and finds little in its time: `make test` has smaller cases of the same.
test-long: $(VENV)/.test
	@$(PYTEST) -m long $(ARGS)

test-toolchains: $(VENV)/.dev
	@$(PYTEST) -m toolchain $(ARGS)

# The state machines and properties on new random examples, ten times as many; EFFORT=100 for a night.
EFFORT ?= 10
machines: $(VENV)/.dev
	@LEVERET_EFFORT=$(EFFORT) $(PYTEST) --timeout=0 --hypothesis-profile=random \
		tests/engine tests/journal tests/amqp_frontend tests/settings tests/expressions $(ARGS)

# The console's page in the distribution's Chromium: all that can be done on it.
browser: $(VENV)/.browser
	@LEVERET_BROWSER=1 $(BIN)/pytest tests/console/test_page.py tests/console/test_page_actions.py tests/console/test_page_find.py tests/console/test_page_events.py tests/console/test_page_jobs.py tests/console/test_page_permissions.py tests/console/test_page_lists.py tests/console/test_page_charts.py tests/console/test_forms.py tests/console/test_operators_night.py tests/cluster/test_page.py tests/cluster/test_night_on_a_cluster.py $(ARGS)

# The data pipeline's tests alone; and the one that starts a cluster of a master and two workers.
spark: $(VENV)/.spark
	@$(BIN)/pytest tests/pipeline $(ARGS)

spark-cluster: $(VENV)/.spark
	@LEVERET_SPARK_CLUSTER=1 $(BIN)/pytest tests/pipeline/test_cluster.py $(ARGS)

# A story of three real brokers in one lake, one of which is killed: every number of every job, on both engines.
three-brokers: $(VENV)/.spark
	@$(BIN)/pytest -n0 tests/pipeline/test_three_brokers.py $(ARGS)

# What-if of random histories under the settings that were in force: `make whatif-stories STORIES=200`.
STORIES ?= 200
whatif-stories: $(VENV)/.spark
	@WHATIF_STORIES=$(STORIES) $(PYTEST) --timeout=0 tests/pipeline/test_whatif_verified.py $(ARGS)

# Lakes in an object store, a stand-in for S3, and their rows through Iceberg's metadata.
object-stores: $(VENV)/.spark
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[dev-stores]'
	@$(BIN)/pytest -n0 tests/pipeline/test_object_stores.py tests/pipeline/test_iceberg.py $(ARGS)

# Ten million events into a lake, five jobs on it, streaming queries killed over living brokers; some 4 GB of disk.
# `make bench-pipeline ARGS="--only jobs"`; journals and lakes stay for the next time.
PIPELINE_DIR ?= .bench-pipeline
bench-pipeline: $(VENV)/.spark
	@$(BIN)/python benchmarks/pipeline_all.py $(PIPELINE_DIR) --out benchmarks/results/pipeline.json $(ARGS)

lint: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.dev
	@$(BIN)/mypy -p leveret
	@$(BIN)/mypy --strict benchmarks/*.py
	@$(BIN)/mypy --config-file tests/mypy.ini tests

# Beside RabbitMQ in the same run; `make bench ARGS="--only S1-16,S2"`.
bench: $(VENV)/.dev
	@$(BIN)/python benchmarks/compare.py $(ARGS)

# What dashboards ask for, at a real Prometheus (Debian: prometheus); `make dashboards ARGS=FILE.json`: somebody else's;
# ARGS=--follower: through a node of a cluster that does not lead.
dashboards: $(VENV)/.dev
	@$(BIN)/python tests/console/prometheus_check.py $(ARGS)

bench-quick: $(VENV)/.dev
	@$(BIN)/python benchmarks/compare.py --quick $(ARGS)

# Full rings, waiting messages, delays.
bench-queues: $(VENV)/.dev
	@$(BIN)/python benchmarks/ring.py --out benchmarks/results/ring.json
	@$(BIN)/python benchmarks/waiting.py --out benchmarks/results/waiting.json
	@$(BIN)/python benchmarks/delays.py --out benchmarks/results/delays.json

# Ten million persistent messages in one queue; some 12 GB of disk.
bench-deep: $(VENV)/.dev
	@$(BIN)/python benchmarks/deep.py --count 10000000 --out benchmarks/results/deep.json $(ARGS)

# The cost of a message over depth, queues and connections; ARGS="--deepest 10000000" needs some 12 GB of disk.
bench-curves: $(VENV)/.dev
	@$(BIN)/python benchmarks/curves.py --out benchmarks/results/curves.json $(ARGS)

# Three nodes beside one node and a three-node RabbitMQ: what copies cost, and each failure; about an hour.
# `make bench-cluster ARGS="--only rate,killed"` asks only that; without FULL= it is small, and no figures.
FULL ?= --full
bench-cluster: $(VENV)/.dev
	@$(BIN)/python benchmarks/cluster.py $(FULL) --out benchmarks/results/cluster.json $(ARGS)

# `make soak ARGS="--long --minutes 95 --pause 6"`: with a journal, reloads, and a probe all the time.
soak: $(VENV)/.dev
	@$(BIN)/python benchmarks/soak.py $(ARGS)

# A writer of the journal and brokers under load, killed at random points; ROUNDS=5000 SEED=7 LANES=4 for a long night.
ROUNDS ?= 2000
SEED ?= 1
LANES ?= 2
crash: $(VENV)/.dev
	@LEVERET_CRASH_ROUNDS=$(ROUNDS) LEVERET_CRASH_SEED=$(SEED) $(BIN)/pytest --timeout=0 tests/journal/test_kill.py $(ARGS)
	@$(BIN)/python tests/journal/crash_rounds.py --rounds $(ROUNDS) --seed $(SEED) --lanes $(LANES)

# Three nodes and three members of etcd on loopback, killed, paused and stopped under load (needs etcd: make peers).
# CLUSTERS=20 has so many clusters, one after the other, of CLUSTER_ROUNDS each; every tenth with default timers.
CLUSTER_ROUNDS ?= 40
CLUSTERS ?= 1
cluster-rounds: $(VENV)/.dev
	@$(BIN)/python tests/cluster/rounds.py --rounds $(CLUSTER_ROUNDS) --seed $(SEED) --clusters $(CLUSTERS) --pace both $(ARGS)

# What operators and clients declare, with checkpoints at every distance from a segment's head; on files in memory.
crash-objects: $(VENV)/.dev
	@$(BIN)/python tests/journal/object_rounds.py --rounds $(ROUNDS) --seed $(SEED)

# The whole broker in worlds that a seed decides: simulated time, network, disk, clients, faults (docs/simulation.md).
SECONDS ?= 60
simulate: $(VENV)/.dev
	@$(BIN)/python tests/simulation/simulate.py --seconds $(SECONDS) --lanes $(LANES) $(if $(filter command line,$(origin SEED)),--seed $(SEED)) $(ARGS)

# The agreement of a cluster: all interleavings of a small one to the end (minutes, gigabytes), then random steps.
STEPS ?= 10000000
cluster-agreement: $(VENV)/.dev
	@PYTHONPATH=tests/support $(BIN)/python tests/support/agreement_all.py --steps $(STEPS) --seed $(SEED) $(ARGS)

# Three nodes of a cluster in storms, from many seeds: virtual time, modelled etcd and links, simulated disks.
COUNT ?= 20
simulate-cluster: $(VENV)/.dev
	@$(BIN)/python tests/cluster/simulation/simulate.py $(if $(filter command line,$(origin SEED)),$(SEED),0) $(COUNT) $(ARGS)

# Faults that are planted in the broker, and how long the simulation takes to find each.
simulate-planted: $(VENV)/.dev
	@$(BIN)/python tests/simulation/find_planted.py $(if $(filter command line,$(origin SEED)),--seed $(SEED)) $(ARGS)

# Faults planted in the code one at a time, and which of them the tests find (docs/testing.md): `make mutants-map` measures
# which tests cover what, first and now and then; `make mutants ROOM=engine/queues SAMPLE=200`. `make mutants ARGS=--rows`:
# all rows, of which those that name a test need no map.
ROOM ?=
SAMPLE ?=
$(VENV)/.mutants: pyproject.toml | $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,dev-mutants]'
	@touch $@

mutants-map: $(VENV)/.mutants
	@$(BIN)/python tests/mutants/mutants.py --map --lanes $(LANES)

mutants: $(VENV)/.mutants
	@$(BIN)/python tests/mutants/mutants.py --room $(ROOM) $(if $(SAMPLE),--sample $(SAMPLE)) --lanes $(LANES) \
		$(if $(filter command line,$(origin SEED)),--seed $(SEED)) $(ARGS)

# Debian's packages of the brokers that we compare with, of etcd, and of Perl's clients.
peers:
	apt-get install -y rabbitmq-server garagemq etcd-server etcd-client
	apt-get install -y nagios-plugins-rabbitmq centreon-plugins libjson-xs-perl
	apt-get install -y libnet-amqp-perl libanyevent-rabbitmq-perl libmojo-rabbitmq-client-perl

# Five clients' own test suites against RabbitMQ and Leveret; `make clients ARGS="--only amqp"`.
clients: $(VENV)/.dev
	@$(BIN)/python -m leveret.interop.suites $(ARGS)

# Clients, tools and generated programs as at one node, through a node of a cluster that does not lead (needs etcd; RabbitMQ
# for the comparisons); and each program of docs/clients-cluster.md while the leader is killed and stopped.
test-clients-cluster: $(VENV)/.interop
	@$(BIN)/pytest -n 0 -m cluster tests/interop tests/cluster/test_clients_page.py $(ARGS)
	@$(if $(ARGS),,$(BIN)/python -m leveret.interop.suites --follower)
	@$(if $(ARGS),,$(BIN)/python -m leveret.interop.workers --follower --broker leveret)
	@$(if $(ARGS),,$(BIN)/python -m leveret.interop.differential --follower --operations $(OPERATIONS))
	@$(if $(ARGS),,$(BIN)/python -m leveret.interop.tools --follower --only "rabbitmqadmin 1,rabbitmqadmin 2,Nagios")
	@$(if $(ARGS),,$(BIN)/python tests/console/prometheus_check.py --follower)

# What a change of the leader costs each client of docs/clients-cluster.md, here and with three RabbitMQs; half an hour.
bench-clients-cluster: $(VENV)/.interop
	@$(BIN)/python -m leveret.interop.takeovers --rounds 3 --write benchmarks/results/cluster-clients.md $(ARGS)

# Real workers of task frameworks against RabbitMQ and Leveret; `make workers ARGS="--only celery -k retries"`.
workers: $(VENV)/.dev
	@$(BIN)/python -m leveret.interop.workers $(ARGS)

# Tools of others at the console, against RabbitMQ and Leveret; draws docs/management-tools.md. Alone: `ARGS="--only Nagios"`.
# The first time it builds rabbitmqadmin 2 and rabbit-hole's tests, which takes a quarter of an hour.
tools: $(VENV)/.interop
	@$(BIN)/python -m leveret.interop.tools $(if $(ARGS),$(ARGS),--write docs/management-tools.md)

# The helpers and pages for frameworks that applications are written in, with all of these in an environment of its own;
# the pages for Node, Go and Java where the machine has these, with the packages that they fetch.
FRAMEWORKS := .peers/frameworks
$(FRAMEWORKS)/.made: tests/testing/frameworks.txt pyproject.toml | $(VENV)/.dev
	@$(PYTHON) -m venv $(FRAMEWORKS)
	@$(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check -r tests/testing/frameworks.txt -e .
	@touch $@

frameworks: $(FRAMEWORKS)/.made
	@LEVERET_STORIES=1 $(FRAMEWORKS)/bin/python -m pytest -p no:cacheprovider \
		tests/testing/test_frameworks.py tests/testing/test_celery_prefetch.py tests/testing/test_pages.py $(ARGS)

# Ten stories on a clean machine: the pages for newcomers word by word, with what they install; needs registries and port
# 5672. `make stories ARGS="--only Node,Go"`; with ARGS="--out docs/stories.md" it writes the figures.
stories: $(VENV)/.dev
	@$(BIN)/python tests/testing/stories.py $(ARGS)

# The images of deploy/ built by podman and run, and the Testcontainers recipes of docs/test-server.md against podman's
# socket; `make image-test ARGS="--only image,go"`. Says what is missing where there is no podman.
image-test: dist
	@$(BIN)/python tests/testing/containers.py $(ARGS)

# Scenarios by thirteen real clients of eight languages, those that this machine has toolchains for, against the brokers
# that it has; writes the scorecard. `make interop ARGS="--broker leveret --client pika,amqp091-go --only 'queue-*'"`.
# Without ARGS they then use leased queues (alone: `python -m leveret.interop --leases`), and five of them see a broker
# that is full, row by row (alone: `python -m leveret.interop.flow`).
$(VENV)/.interop: pyproject.toml | $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[interop]'
	@touch $@

interop: $(VENV)/.interop
	@$(BIN)/python -m leveret.interop $(if $(ARGS),$(ARGS),--quiet --broker leveret,rabbitmq,garagemq,qpid --scorecard benchmarks/results/scorecard)
	@$(if $(ARGS),,$(BIN)/python -m leveret.interop --quiet --broker leveret --leases --scorecard benchmarks/results/lease-clients)
	@$(if $(ARGS),,$(BIN)/python -m leveret.interop.flow --write benchmarks/results/flow-clients.md)

# Ring and redelivery scenarios against a real Artemis (from Maven Central, once) and Leveret; writes benchmarks/results/artemis.md.
$(VENV)/.artemis: pyproject.toml | $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[artemis]'
	@touch $@

artemis: $(VENV)/.artemis
	@$(BIN)/python -m leveret.interop.artemis $(if $(ARGS),$(ARGS),--write benchmarks/results/artemis.md)

# Generated programs against RabbitMQ and Leveret at once, or (PEER=model) against a model of what RabbitMQ does not have
# and the engine; OPERATIONS=200000 SEED=7.
OPERATIONS ?= 20000
differential: $(VENV)/.dev
	@$(BIN)/python $(if $(filter model,$(PEER)),tests/model/differential.py,-m leveret.interop.differential) --operations $(OPERATIONS) $(if $(filter command line,$(origin SEED)),--seed $(SEED)) $(ARGS)

# Queues and exchanges declared again with other arguments, some 1,150 pairs, at a RabbitMQ and a Leveret.
redeclarations: $(VENV)/.dev
	@$(BIN)/python tests/spec/redeclared_beside_rabbitmq.py $(ARGS)

# Coverage-guided fuzzing: of whole conversations (frames), or of the frame reader alone (FUZZ_TARGET=reader).
FUZZ_SECONDS ?= 60
FUZZ_TARGET ?= frames
$(VENV)/.fuzz: pyproject.toml | $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fuzz]'
	@touch $@

fuzz: $(VENV)/.fuzz
	@$(BIN)/python tests/fuzz/fuzz_$(FUZZ_TARGET).py -max_total_time=$(FUZZ_SECONDS) $(ARGS)

# CHANGELOG.md from the fragments in changelog.d/.
changelog: $(VENV)/.serve
	@$(BIN)/python docs/draw_changelog.py > CHANGELOG.md

# A release: `python docs/release.py VERSION`, commit, tag vVERSION, then `make dist`: the wheel and the source, checked.
DIST := dist
dist: $(VENV)/.dev
	@rm -rf $(DIST) && $(BIN)/python -m build --outdir $(DIST) . >/dev/null
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'twine>=6,<7' && $(BIN)/twine check --strict $(DIST)/*

# The wheel alone, quickly: what `pip install leveret` takes while there is no release (docs/installing.md).
wheel: $(VENV)/.serve
	@rm -rf build && $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(DIST) . && rm -rf build
	@ls $(DIST)/*.whl

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
