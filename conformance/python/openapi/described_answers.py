"""Schemathesis against the OpenAPI document of the conversation API.

Every operation gets random requests that follow the document and random requests
that do not. No answer may be a server error, and every answer must have a status,
a content type, headers and a body that the document describes. Half of the requests
name things that exist, because most others end early with "not found".

The examples and the time are bounded, and the seed is fixed, so that a failure can be
repeated.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request

import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

GATEWAY = os.environ["THROUGHLINE_URL"].rstrip("/")
# Examples of each operation, for each of the two modes.
EXAMPLES = 10
# Seconds for all operations together. The rest gets one example each.
BUDGET = 30
# Seconds for one request.
TIMEOUT = 20
SEED = 20_261
HEADERS = {"authorization": "Bearer conformance-openapi"}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# Provider and model of the projects that the requests are about.
LOCK = {"provider": "a", "model": "claude-opus-5"}


def send(method, path, body=None):
    """Sends a request of the preparation, and returns the headers and the text."""
    data = None if body is None else json.dumps(body).encode()
    headers = {**HEADERS, "content-type": "application/json"}
    request = urllib.request.Request(GATEWAY + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        return answer.headers, answer.read().decode()


class Project:
    """A project with two branches, some nodes and a run. Some requests delete it."""

    def __init__(self):
        self.prepare()

    def prepare(self):
        new = {"title": "Herons", **LOCK}
        self.id = json.loads(send("POST", "/api/projects", new)[1])["id"]
        headers, _ = send("POST", f"/api/projects/{self.id}/chat", {"message": "hello"})
        self.run = headers["x-throughline-run"]
        self.node = headers["x-throughline-node"]
        send("POST", f"/api/projects/{self.id}/branches", {"name": "other"})

    def exists(self):
        try:
            send("GET", f"/api/projects/{self.id}/nodes/{self.node}")
            return True
        except urllib.error.HTTPError:
            return False

    def name_in(self, case):
        """Puts names that exist into the path and the body of a request."""
        known = {"id": self.id, "node": self.node, "name": "other"}
        if case.path.startswith("/api/runs/"):
            known["id"] = self.run
        for name in case.path_parameters or {}:
            case.path_parameters[name] = known.get(name, case.path_parameters[name])
        if isinstance(case.body, dict):
            for member in ("nodeId", "expectedHead"):
                if member in case.body:
                    case.body[member] = self.node
            for member in ("branch", "from", "fromRef"):
                if member in case.body:
                    case.body[member] = "other"


def check(operation, mode, project, examples):
    """Sends random requests for one operation."""

    @seed(SEED)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @given(case=operation.as_strategy(generation_mode=mode), is_known=st.booleans())
    def requests(case, is_known):
        if is_known:
            if not project.exists():
                project.prepare()
            project.name_in(case)
        case.call_and_validate(
            checks=CHECKS, headers=dict(HEADERS), timeout=TIMEOUT, base_url=GATEWAY
        )

    requests()


def main():
    schema = schemathesis.openapi.from_url(f"{GATEWAY}/api/openapi.json")
    project = Project()
    operations = [result.ok() for result in schema.get_all_operations()]
    if len(operations) < 25:
        sys.exit(f"the document has only {len(operations)} operations")
    began = time.monotonic()
    failures = []
    for operation in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            late = time.monotonic() - began > BUDGET
            try:
                check(operation, mode, project, 1 if late else EXAMPLES)
            except Unsatisfiable:
                # Every request for an operation without a body or a query follows the document.
                if mode == GenerationMode.POSITIVE:
                    failures.append(f"{operation.method.upper()} {operation.path}: no valid request")
            except (Exception, FailureGroup) as failure:  # noqa: BLE001, all findings are reported
                failures.append(f"{operation.method.upper()} {operation.path} ({mode}): {failure}")
    print(f"schemathesis: {len(operations)} operations in {time.monotonic() - began:.1f} s")
    if failures:
        sys.exit("\n\n".join(failures))


if __name__ == "__main__":
    main()
