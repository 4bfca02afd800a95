"""The queries of the documentation, each on a store with something to find."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import fleet
import pytest

from necropsy import triaging
from necropsy.triage import corrections
from necropsy.triage.queries import VIEWS, QueryResult, query
from necropsy.triage.store import TriageStore

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = (DOCS / "how-to" / "triage-queries.md").read_text()
QUERIES = dict(re.findall(r"^## (.+?)\n.*?^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two bugs, one of them closed; five deaths this week, one in the week before."""
    folder = tmp_path_factory.mktemp("queries")
    now = datetime.now(timezone.utc)
    for number, days in enumerate((1, 2, 3, 3, 4, 9)):
        at = f"{now - timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}"
        name = "merge_rows" if number == 0 else "score_rows"
        fleet.write(folder / "in", f"{number}.json", name, number=number, at=at, host=f"node{number % 2}")
    options = triaging.Options(store=folder / "store", jobs=1)
    found = triaging.triaged([folder / "in"], options).document.triage
    assert found is not None
    triaging.corrected(folder / "store", lambda session: corrections.close(session, found.groups[1].id, "2.1"))
    return folder / "store"


def answered(store: Path, sql: str) -> QueryResult:
    with TriageStore(store).session() as session:
        return query(session, sql)


def test_there_are_ten() -> None:
    assert len(QUERIES) == 10


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_of_the_docs_answers(store: Path, name: str) -> None:
    sql = QUERIES[name]
    if "g1f0c77a2" in sql:
        ((identity,),) = answered(store, "SELECT id FROM groups ORDER BY count DESC LIMIT 1").rows
        sql = sql.replace("g1f0c77a2", identity)
    found = answered(store, sql)
    if "may hold two bugs" not in name:  # these are alike
        assert found.rows


def test_the_answers_are_right(store: Path) -> None:
    def rows(beginning: str) -> Any:
        (sql,) = (sql for name, sql in QUERIES.items() if name.startswith(beginning))
        return answered(store, sql).rows

    assert rows("Is one machine worse") == (("node0", 3, 2), ("node1", 3, 1))
    assert [row[1] for row in rows("How many deaths has each day")] == [1, 1, 2, 1, 1]
    assert sorted(row[1:] for row in rows("Which bugs became more frequent")) == [(1, 0), (4, 1)]
    assert rows("Which kinds of death") == (("null-dereference", 2, 6),)
    assert [row[1:3] for row in rows("Which bugs are closed")] == [("closed", "2.1")]


def test_the_page_of_the_store_describes_every_column(store: Path) -> None:
    page = (DOCS / "reference" / "triage-store.md").read_text()
    for view in VIEWS:
        part = page.partition(f"### {view}\n")[2].partition("\n#")[0]
        told = set(
            re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in part.splitlines() if line[:3] == "| `"))
        )
        columns = answered(store, f"SELECT * FROM {view}").columns
        assert told == set(columns), view
