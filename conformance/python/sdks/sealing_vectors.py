"""The vectors of docs/sealing.md with `cryptography` and `argon2-cffi`, in both directions.

First every vector of the repository opens, or fails with its error. Then this script
makes new ones from random keys, and the program in CONFORMANCE_SEALING, which uses the
crate of the server, has to open them.
"""

import json
import os
import pathlib
import subprocess
import tempfile

import harness
import sealing
from harness import check


def check_fields():
    vectors = load("sealing-vectors.json")
    for index, vector in enumerate(vectors):
        it = Vector(f"field {index}", vector)
        parts = (it.bytes("chat"), it.bytes("node"), it.bytes("field"))
        it.expect("keyId", sealing.key_check(it.bytes("key")))
        it.expect_binding(sealing.FIELD, parts)
        it.expect_opened(
            "plaintext",
            lambda: sealing.open_field(it.bytes("key"), *parts, it.bytes("envelope")),
        )
        if "error" not in vector:
            made = sealing.seal_field(
                it.bytes("key"), *parts, it.bytes("nonce"), it.bytes("plaintext")
            )
            it.expect("envelope", made)
    check_errors(vectors, 6)


def check_keys():
    vectors = load("sealing-key-vectors.json")
    lists = {
        "managedChatKeys": check_managed_chat_key,
        "wrappedKeys": check_wrapped_key,
        "sharedKeys": check_shared_key,
        "passphrases": check_passphrase,
        "recoveryCodes": check_recovery_code,
        "authRecords": check_auth_record,
    }
    check(list(vectors) == list(lists), f"unknown lists: {list(vectors)}")
    for name, check_one in lists.items():
        check(vectors[name], f"`{name}` is empty")
        for index, vector in enumerate(vectors[name]):
            check_one(Vector(f"{name} {index}", vector))
    check_errors(vectors["wrappedKeys"], 3)
    check_errors(vectors["sharedKeys"], 4)


def check_managed_chat_key(it):
    it.expect("info", sealing.join(sealing.MANAGED_CHAT, it.bytes("chat")))
    key = sealing.managed_chat_key(it.bytes("secret"), it.bytes("chat"))
    it.expect("key", key)
    it.expect("keyId", sealing.key_check(key))


def check_wrapped_key(it):
    purpose, name = it.vector["purpose"], it.bytes("name")
    check(purpose in sealing.PURPOSES, f"unknown purpose {purpose}")
    it.expect("keyId", sealing.key_check(it.bytes("under")))
    it.expect_binding(sealing.WRAPPED_KEY, (purpose, name))
    it.expect_opened(
        "key",
        lambda: sealing.unwrap_key(it.bytes("envelope"), it.bytes("under"), purpose, name),
    )
    if "error" not in it.vector:
        made = sealing.wrap_key(
            it.bytes("key"), it.bytes("under"), purpose, name, it.bytes("nonce")
        )
        it.expect("envelope", made)


def check_shared_key(it):
    private, ephemeral = it.bytes("recipientPrivate"), it.bytes("ephemeralPrivate")
    public, once = sealing.public_key(private), sealing.public_key(ephemeral)
    it.expect("recipientPublic", public)
    it.expect("ephemeralPublic", once)
    it.expect("keyId", sealing.fingerprint(public))
    it.expect("sharedSecret", sealing.agree(private, once))
    it.expect_binding(sealing.SHARED_KEY, (once, public, it.bytes("chat")))
    it.expect_opened(
        "key",
        lambda: sealing.open_shared_key(it.bytes("envelope"), it.bytes("chat"), private),
    )
    if "error" not in it.vector:
        made = sealing.share_key(
            it.bytes("key"), it.bytes("chat"), public, ephemeral, it.bytes("nonce")
        )
        it.expect("envelope", made)


def check_passphrase(it):
    settings = [it.vector[name] for name in ("memoryKiB", "iterations", "parallelism")]
    passphrase = it.bytes("passphrase").decode()
    it.expect_opened(
        "root", lambda: sealing.stretch(passphrase, *settings, it.bytes("salt"))
    )
    if "error" not in it.vector:
        it.expect_user_keys(it.bytes("root"))


def check_recovery_code(it):
    code = it.vector["code"]
    it.expect_opened("bytes", lambda: sealing.read_recovery_code(code))
    if "error" not in it.vector:
        written = sealing.write_recovery_code(it.bytes("bytes"))
        check(written == it.vector["written"], f"{it.name}: written as {written}")
        it.expect_user_keys(it.bytes("bytes"))


def check_auth_record(it):
    it.expect("record", sealing.auth_record(it.bytes("authKey"), it.bytes("salt")))


def check_made():
    """Makes fields and keys from random values; the crate must open them, and refuse altered ones."""
    program = os.environ.get("CONFORMANCE_SEALING")
    check(program, "CONFORMANCE_SEALING names no program; build the example `check_vectors`")
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, vectors in (("fields", made_fields()), ("keys", made_keys())):
            files.append(pathlib.Path(folder) / f"{name}.json")
            files[-1].write_text(json.dumps(vectors), encoding="utf-8")
        run = subprocess.run(
            [program, *files], capture_output=True, text=True, timeout=harness.TIMEOUT * 2
        )
    check(run.returncode == 0, f"the crate disagrees:\n{run.stdout}{run.stderr}")


def made_fields():
    vectors = []
    for size in (0, 1, 15, 16, 17, 1000, 70000):
        key, nonce, plaintext = os.urandom(32), os.urandom(12), os.urandom(size)
        parts = (f"chat-{size}", "knoten-ü", "thinking_content")
        envelope = sealing.seal_field(key, *parts, nonce, plaintext)
        vector = {
            "key": key.hex(),
            "keyId": sealing.key_check(key).hex(),
            **{name: part.encode().hex() for name, part in zip(("chat", "node", "field"), parts)},
            **binding(sealing.FIELD, parts, envelope),
            "nonce": nonce.hex(),
            "envelope": envelope.hex(),
            "plaintext": plaintext.hex(),
        }
        vectors += [vector, altered(vector)]
    return vectors


def made_keys():
    key, under, nonce = os.urandom(32), os.urandom(32), os.urandom(12)
    wrapped = []
    for purpose in sealing.PURPOSES:
        envelope = sealing.wrap_key(key, under, purpose, "ada", nonce)
        vector = {
            "purpose": purpose,
            "name": b"ada".hex(),
            "under": under.hex(),
            "keyId": sealing.key_check(under).hex(),
            "key": key.hex(),
            **binding(sealing.WRAPPED_KEY, (purpose, "ada"), envelope),
            "nonce": nonce.hex(),
            "envelope": envelope.hex(),
        }
        wrapped += [vector, altered(vector)]
    private, ephemeral = os.urandom(32), os.urandom(32)
    public, once = sealing.public_key(private), sealing.public_key(ephemeral)
    envelope = sealing.share_key(key, "chat-1", public, ephemeral, nonce)
    shared = {
        "chat": b"chat-1".hex(),
        "key": key.hex(),
        "recipientPrivate": private.hex(),
        "recipientPublic": public.hex(),
        "keyId": sealing.fingerprint(public).hex(),
        "ephemeralPrivate": ephemeral.hex(),
        "ephemeralPublic": once.hex(),
        **binding(sealing.SHARED_KEY, (once, public, "chat-1"), envelope),
        "nonce": nonce.hex(),
        "envelope": envelope.hex(),
    }
    chat_key = sealing.managed_chat_key(key, "chat-1")
    return {
        "managedChatKeys": [
            {
                "secret": key.hex(),
                "chat": b"chat-1".hex(),
                "info": sealing.join(sealing.MANAGED_CHAT, "chat-1").hex(),
                "key": chat_key.hex(),
                "keyId": sealing.key_check(chat_key).hex(),
            }
        ],
        "wrappedKeys": wrapped,
        "sharedKeys": [shared, altered(shared)],
        "passphrases": [made_passphrase()],
        "recoveryCodes": [made_recovery_code()],
        "authRecords": [
            {
                "authKey": key.hex(),
                "salt": nonce.hex() + "00000000",
                "record": sealing.auth_record(key, nonce + bytes(4)).hex(),
            }
        ],
    }


def made_passphrase():
    passphrase, salt = "une nuit d'e\u0301te\u0301", os.urandom(24)
    root = sealing.stretch(passphrase, 70000, 3, 2, salt)
    return {
        "passphrase": passphrase.encode().hex(),
        "memoryKiB": 70000,
        "iterations": 3,
        "parallelism": 2,
        "salt": salt.hex(),
        **shown_user_keys(root),
    }


def made_recovery_code():
    code = os.urandom(20)
    written = sealing.write_recovery_code(code)
    return {
        "code": written.replace("-", ""),
        "bytes": code.hex(),
        "written": written,
        **shown_user_keys(code),
    }


def shown_user_keys(root):
    auth, wrap = sealing.user_keys(root)
    return {"authKey": auth.hex(), "wrapKey": wrap.hex()}


def binding(label, parts, envelope):
    aad = envelope[: sealing.BOUND] + sealing.join(*parts)
    return {"info": sealing.join(label, *parts).hex(), "aad": aad.hex()}


def altered(vector):
    """The same vector with another last byte."""
    envelope = bytearray.fromhex(vector["envelope"])
    envelope[-1] ^= 1
    return {**vector, "envelope": envelope.hex(), "error": "altered"}


class Vector:
    """One vector. All its bytes are hexadecimal digits."""

    def __init__(self, name, vector):
        self.name = name
        self.vector = vector

    def bytes(self, member):
        return bytes.fromhex(self.vector[member])

    def expect(self, member, actual):
        expected = self.vector[member]
        check(
            actual.hex() == expected,
            f"{self.name}: `{member}` is {actual.hex()} here, not {expected}",
        )

    def expect_binding(self, label, parts):
        expected = binding(label, parts, self.bytes("envelope"))
        for member, value in expected.items():
            check(self.vector[member] == value, f"{self.name}: `{member}` is {value} here")

    def expect_opened(self, member, work):
        """Checks that the work gives a member, or is refused with the vector's error."""
        try:
            opened = work()
        except sealing.Refused as refused:
            error = self.vector.get("error")
            check(refused.args[0] == error, f"{self.name}: {refused}, not {error}")
        else:
            check("error" not in self.vector, f"{self.name}: it opened")
            self.expect(member, opened)

    def expect_user_keys(self, root):
        for member, value in shown_user_keys(root).items():
            check(self.vector[member] == value, f"{self.name}: `{member}` is {value} here")


def check_errors(vectors, least):
    """Checks that the file has vectors of both kinds."""
    errors = {vector["error"] for vector in vectors if "error" in vector}
    check(len(errors) >= least, f"only these errors occur: {errors}")
    check(any("error" not in vector for vector in vectors), "no vector opens")


def load(file):
    """A file in `docs` of the repository that contains the working directory."""
    here = pathlib.Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "throughline.example.toml").exists():
            return json.loads((folder / "docs" / file).read_text(encoding="utf-8"))
    raise SystemExit("FAILED  run this inside the repository")


harness.run(
    [
        ("cryptography opens the vectors of fields", check_fields),
        ("cryptography opens the vectors of keys", check_keys),
        ("cryptography makes vectors that the crate opens", check_made),
    ]
)
