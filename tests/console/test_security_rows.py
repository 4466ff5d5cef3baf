"""Each row of management page 20 has tests: which ones stands here, and that they exist is looked at."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reference" / "management.md"

TESTS = {
    "reachable from outside by default": [
        "test_security.test_serve_listens_on_loopback",
        "test_security.test_configuration_that_is_refused",
        "test_security.test_without_the_extra",
    ],
    "default login from outside": [
        "test_security.test_guest_only_from_here",
        "test_proxies.test_guest_through_a_proxy",
    ],
    "DNS rebinding": [
        "test_security.test_names_that_somebody_else_pointed_here",
        "test_metrics.test_names_that_point_here_from_elsewhere_are_refused",
    ],
    "CSRF": [
        "test_security.test_pages_elsewhere_change_nothing",
        "test_sessions.test_forms_of_other_pages",
        "test_security.test_a_session_of_a_page",
        "test_tls.test_served_over_tls",
    ],
    "CORS": [
        "test_security.test_no_header_for_origins_that_are_not_listed",
        "test_proxies.test_a_listed_origin_reads_answers",
        "test_proxies.test_any_origin_reads_without_a_login_of_the_browser",
    ],
    "XSS": [
        "test_page.test_hostile_names",
        "test_page_files.test_texts_stay_texts",
        "test_security.test_every_answer_has_the_headers",
        "test_security.test_names_with_markup_are_text",
        "test_tls.test_served_over_tls",
    ],
    "body size": [
        "test_security.test_bodies_have_an_end",
        "test_security.test_json_that_would_cost_too_much",
        "test_security.test_one_key_twice_in_definitions",
        "test_security.test_a_stranger_sends_no_body",
        "test_security.test_forms_have_few_fields_with_short_heads",
        "test_access.test_a_form_with_a_file",
    ],
    "slowloris, floods": [
        "test_security.test_heads_have_an_end",
        "test_security.test_slow_peers",
        "test_security.test_a_trickle_is_too_slow",
        "test_security.test_too_many_connections",
        "test_security.test_requests_at_once",
        "test_security.test_who_does_not_read_the_answer",
        "test_slots.test_an_address_has_its_share",
        "test_slots.test_half_a_request_keeps_nobody_out",
        "test_slots.test_slow_bodies_beside_health_probes",
        "test_slots.test_connections_that_say_nothing_are_closed_for_others",
        "test_slots.test_health_has_room_when_the_console_has_none",
    ],
    "brute force": [
        "test_guessing.test_ways_in_count_together",
        "test_guessing.test_guesses_at_once",
        "test_guessing.test_who_is_a_user_is_not_told",
        "test_guessing.test_what_is_refused_is_not_counted_again",
        "engine/test_login_throttle.test_waits_get_longer",
    ],
    "path traversal": ["test_security.test_paths_lead_nowhere_else", "test_page_files.test_nothing_else_is_served"],
    "header injection": [
        "test_security.test_the_reason_of_a_close_is_only_text",
        "test_security.test_the_name_of_a_download",
        "server/test_hostile_log.test_no_peer_writes_a_line",
    ],
    "SSRF, dial-out": [
        "test_parameters.test_upstreams_that_are_kept",
        "test_parameters.test_a_shovel_of_amqp_1_is_kept",
    ],
    "regular expressions": ["test_security.test_a_pattern_that_backtracks_elsewhere"],
    "secrets": [
        "test_security.test_hashes_are_for_administrators",
        "test_tls.test_passwords_are_in_no_log",
        "server/test_hostile_log.test_passwords_and_bodies_never_reach_the_log",
        "test_security.test_a_session_of_a_page",
    ],
    "metrics leak names": [
        "test_metrics.test_names_are_for_monitors_outside_loopback",
        "test_proxies.test_names_of_objects_through_a_proxy",
    ],
    "loss of the loop": [
        "test_steps.test_no_list_is_made_in_one_piece",
        "test_steps.test_what_comes_and_goes_meanwhile",
    ],
}


def _rows() -> list[str]:
    section = PAGE.read_text().partition("\n## 20 ")[2].partition("\n## ")[0]
    cells = [line.split(" | ")[0].removeprefix("| ") for line in section.splitlines() if line.startswith("| ")]
    return cells[1:]  # without the head of the table


def test_all_rows_are_here() -> None:
    """A new row needs a test."""
    assert sorted(_rows()) == sorted(TESTS)


@pytest.mark.parametrize("name", sorted({name for names in TESTS.values() for name in names}))
def test_it_exists(name: str) -> None:
    """Under this name, in this file; those of other folders are named with them."""
    file, _, function = name.partition(".")
    folder = HERE.parent if "/" in file else HERE
    assert re.search(rf"^def {function}\(", (folder / f"{file}.py").read_text(), re.MULTILINE)
