"""The tables of a store, and the views that queries use: see docs/reference/triage-store.md."""

from __future__ import annotations

VERSION = 2
"""``PRAGMA user_version``. A store of a larger one is left alone."""

TABLES = """
CREATE TABLE run (
    number INTEGER PRIMARY KEY,
    at TEXT NOT NULL
);
CREATE TABLE file (
    path TEXT PRIMARY KEY,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    hash TEXT,
    has_death INTEGER NOT NULL,
    gaps TEXT NOT NULL DEFAULT '[]'
) WITHOUT ROWID;
CREATE TABLE bug (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    run INTEGER NOT NULL,
    name TEXT,
    closed_run INTEGER,
    closed_at TEXT,
    fixed_in TEXT,
    names TEXT NOT NULL DEFAULT '[]',
    why TEXT NOT NULL DEFAULT '[]'
);
CREATE TABLE summary (
    bug INTEGER PRIMARY KEY,
    title TEXT NOT NULL,
    count INTEGER NOT NULL,
    first_at TEXT,
    last_at TEXT,
    rule TEXT,
    confidence TEXT,
    ended TEXT,
    function TEXT,
    module TEXT,
    python_file TEXT,
    python_line INTEGER,
    regression INTEGER NOT NULL,
    hosts INTEGER NOT NULL,
    texts_only INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE alias (
    id TEXT PRIMARY KEY,
    bug INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE fingerprint (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    body BLOB NOT NULL,
    bug INTEGER,
    fit REAL
);
CREATE INDEX fingerprint_fit ON fingerprint (fit);
CREATE TABLE death (
    number INTEGER PRIMARY KEY,
    path TEXT NOT NULL,
    place INTEGER NOT NULL,
    document TEXT,
    pid INTEGER,
    died_at TEXT,
    source TEXT NOT NULL,
    host TEXT,
    rule TEXT,
    confidence TEXT,
    ended TEXT NOT NULL,
    signature TEXT,
    summary TEXT,
    function TEXT,
    module TEXT,
    source_line TEXT,
    python_file TEXT,
    python_line INTEGER,
    python_function TEXT,
    op TEXT,
    versions TEXT NOT NULL DEFAULT '{}',
    fingerprint INTEGER NOT NULL,
    bug INTEGER,
    run INTEGER NOT NULL,
    line INTEGER
);
CREATE UNIQUE INDEX death_text ON death (path, place) WHERE document IS NULL;
CREATE INDEX death_path ON death (path);
CREATE UNIQUE INDEX death_document ON death (document, place) WHERE document IS NOT NULL;
CREATE INDEX death_fingerprint ON death (fingerprint);
CREATE INDEX death_bug ON death (bug, died_at, host);
CREATE INDEX death_host ON death (host, bug);
CREATE INDEX death_time ON death (died_at);
CREATE TABLE correction (
    number INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE TABLE suggestion (
    older INTEGER NOT NULL,
    younger INTEGER NOT NULL,
    evidence TEXT NOT NULL,
    PRIMARY KEY (older, younger)
) WITHOUT ROWID;
CREATE TABLE sent (
    receiver TEXT NOT NULL,
    item TEXT NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (receiver, item)
) WITHOUT ROWID;
"""

VIEWS = """
CREATE VIEW deaths AS
SELECT bug.id AS group_id, path, place, line, document, pid, died_at, substr(died_at, 1, 10) AS day, source, host, rule,
       confidence, ended, signature, summary, function, module, source_line, python_file, python_line,
       python_function, op, versions
FROM death LEFT JOIN bug ON bug.number = death.bug;
CREATE VIEW groups AS
SELECT id, title, count, first_at, last_at, rule, confidence, ended, function, module, python_file, python_line,
       CASE WHEN closed_run IS NULL THEN
           CASE WHEN bug.run = (SELECT max(number) FROM run) THEN 'new' ELSE 'known' END
       WHEN regression THEN 'regression' ELSE 'closed' END AS status,
       fixed_in, closed_at, run.at AS opened_at, hosts, texts_only
FROM summary JOIN bug ON bug.number = summary.bug JOIN run ON run.number = bug.run;
CREATE VIEW members AS
SELECT bug.id AS group_id, path, place, line, document, pid, died_at, host, source, fit
FROM death JOIN fingerprint ON fingerprint.number = death.fingerprint JOIN bug ON bug.number = fingerprint.bug;
"""

UPGRADES = {
    1: """
ALTER TABLE file ADD COLUMN gaps TEXT NOT NULL DEFAULT '[]';
ALTER TABLE death ADD COLUMN line INTEGER;
DROP VIEW deaths;
DROP VIEW groups;
DROP VIEW members;
"""
}
"""What makes a store of each older version one of this, but for the views."""
