"""docs/clients-cluster.md does what it says: its programs lose nothing while the leader is killed or stopped."""

from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from etcd_servers import ETCD, WHY_NOT

from leveret.interop.running.toolchains import NotHere
from leveret.interop.takeovers.programs import PROGRAMS, sources
from leveret.interop.takeovers.subjects import CHANGES, LeveretCluster, leveret_cluster
from leveret.interop.takeovers.trial import run

WORK = Path(__file__).parents[2] / ".peers" / "takeovers"
NUMBERS = count()


def test_the_page_has_each_program() -> None:
    """And no other."""
    assert sources().keys() == {program.file for program in PROGRAMS.values()}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LeveretCluster]:
    """Three nodes in sync."""
    with leveret_cluster() as made:
        yield made


@pytest.mark.cluster
@pytest.mark.skipif(ETCD is None, reason=WHY_NOT)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("client", PROGRAMS)
def test_nothing_is_lost_and_what_comes_again_says_so(
    cluster: LeveretCluster, tmp_path: Path, client: str, change: str
) -> None:
    """Each order is there, once or redelivered: the duplicate ids keep those that were published again apart."""
    try:
        command = PROGRAMS[client].prepare(WORK, print)
    except NotHere as error:
        pytest.skip(str(error))
    cluster.heal()
    outcome = run(command, cluster.urls(), partial(CHANGES[change], cluster), tmp_path, next(NUMBERS))
    assert outcome.is_well, outcome
    assert outcome.published_s < 60 and outcome.consumed_s < 60, outcome
