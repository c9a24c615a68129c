"""The formats of docs/sealing.md, written from that page with other libraries.

Nothing here comes from the Rust crate: both must agree because both follow the page.
"""

import hashlib
import hmac
import struct
import unicodedata

from argon2.low_level import Type, hash_secret_raw
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

MAGIC = b"TL"
VERSION = 1
SECRET_KEY, PUBLIC_KEY = 1, 2
BOUND, HEAD, TAG, POINT = 20, 32, 16, 32

FIELD = "throughline field v1"
WRAPPED_KEY = "throughline wrapped key v1"
SHARED_KEY = "throughline shared key v1"
MANAGED_CHAT = "throughline managed chat v1"

# What may be wrapped.
PURPOSES = ("master key", "chat key", "private key", "previous chat key")

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ*~$=U"


class Refused(Exception):
    """An envelope that does not open; its only argument is the name of the error."""


def join(*parts):
    """Each part after its length in four bytes."""
    parts = [part.encode() if isinstance(part, str) else part for part in parts]
    return b"".join(struct.pack(">I", len(part)) + part for part in parts)


def derive(secret, info):
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=b"", info=info).derive(secret)


def key_check(key):
    return hmac.new(key, b"throughline key check", hashlib.sha256).digest()[:16]


def fingerprint(public):
    return hashlib.sha256(join("throughline public key v1", public)).digest()[:16]


def managed_chat_key(secret, chat):
    return derive(secret, join(MANAGED_CHAT, chat))


def _seal(suite, secret, key_id, label, parts, nonce, public, plaintext):
    bound = MAGIC + bytes([VERSION, suite]) + key_id
    cipher = AESGCM(derive(secret, join(label, *parts)))
    return bound + nonce + public + cipher.encrypt(nonce, plaintext, bound + join(*parts))


def _read(envelope, suite):
    """Checks the head; returns the key id and what follows the head."""
    if envelope[:2] != MAGIC[: len(envelope)]:
        raise Refused("foreign")
    if len(envelope) < 3:
        raise Refused("truncated")
    if envelope[2] != VERSION:
        raise Refused("unknown_version")
    if len(envelope) < 4:
        raise Refused("truncated")
    if envelope[3] != suite:
        raise Refused("unknown_suite")
    if len(envelope) < HEAD + TAG:
        raise Refused("truncated")
    return envelope[4:BOUND], envelope[HEAD:]


def _open(envelope, secret, label, parts, ciphertext):
    cipher = AESGCM(derive(secret, join(label, *parts)))
    try:
        return cipher.decrypt(
            envelope[BOUND:HEAD], ciphertext, envelope[:BOUND] + join(*parts)
        )
    except InvalidTag:
        raise Refused("altered") from None


def seal_field(key, chat, node, field, nonce, plaintext):
    parts = (chat, node, field)
    return _seal(SECRET_KEY, key, key_check(key), FIELD, parts, nonce, b"", plaintext)


def open_field(key, chat, node, field, envelope):
    key_id, ciphertext = _read(envelope, SECRET_KEY)
    if key_id != key_check(key):
        raise Refused("wrong_key")
    return _open(envelope, key, FIELD, (chat, node, field), ciphertext)


def wrap_key(key, under, purpose, name, nonce):
    parts = (purpose, name)
    return _seal(SECRET_KEY, under, key_check(under), WRAPPED_KEY, parts, nonce, b"", key)


def unwrap_key(envelope, under, purpose, name):
    key_id, ciphertext = _read(envelope, SECRET_KEY)
    if key_id != key_check(under):
        raise Refused("wrong_key")
    return _open(envelope, under, WRAPPED_KEY, (purpose, name), ciphertext)


def public_key(private):
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private, public):
    """The shared secret; fails for the few public keys that give the same secret to everyone."""
    own = X25519PrivateKey.from_private_bytes(private)
    return own.exchange(X25519PublicKey.from_public_bytes(public))


def share_key(key, chat, recipient, ephemeral, nonce):
    once = public_key(ephemeral)
    secret = agree(ephemeral, recipient)
    parts = (once, recipient, chat)
    key_id = fingerprint(recipient)
    return _seal(PUBLIC_KEY, secret, key_id, SHARED_KEY, parts, nonce, once, key)


def open_shared_key(envelope, chat, private):
    key_id, rest = _read(envelope, PUBLIC_KEY)
    own = public_key(private)
    if key_id != fingerprint(own):
        raise Refused("wrong_key")
    if len(rest) < POINT + TAG:
        raise Refused("truncated")
    once, ciphertext = rest[:POINT], rest[POINT:]
    try:
        secret = agree(private, once)
    except ValueError:
        raise Refused("altered") from None
    return _open(envelope, secret, SHARED_KEY, (once, own, chat), ciphertext)


def stretch(passphrase, memory_kib, iterations, parallelism, salt):
    """Argon2id over a passphrase; refuses settings that the page forbids."""
    fine = (
        65536 <= memory_kib <= 1048576
        and 3 <= iterations <= 64
        and 1 <= parallelism <= 16
        and 16 <= len(salt) <= 64
        and passphrase
    )
    if not fine:
        raise Refused("refused")
    return hash_secret_raw(
        secret=unicodedata.normalize("NFC", passphrase).encode(),
        salt=salt,
        time_cost=iterations,
        memory_cost=memory_kib,
        parallelism=parallelism,
        hash_len=32,
        type=Type.ID,
        version=0x13,
    )


def user_keys(root):
    """The auth key and the wrap key."""
    labels = ("throughline auth key v1", "throughline wrap key v1")
    return tuple(derive(root, join(label)) for label in labels)


def write_recovery_code(code):
    number = int.from_bytes(code, "big")
    symbols = "".join(CROCKFORD[number >> 5 * at & 31] for at in reversed(range(32)))
    groups = [symbols[at : at + 4] for at in range(0, 32, 4)]
    return "-".join(groups + [CROCKFORD[number % 37]])


def read_recovery_code(text):
    letters = [letter for letter in text.upper() if letter != "-" and not letter.isspace()]
    values = []
    for letter in letters:
        at = CROCKFORD.find({"O": "0", "I": "1", "L": "1"}.get(letter, letter))
        if at < 0:
            raise Refused("symbol")
        values.append(at)
    if len(values) != 33:
        raise Refused("length")
    number = 0
    for value in values[:-1]:
        number = number * 32 + value
    if max(values[:-1]) > 31 or number % 37 != values[-1]:
        raise Refused("check")
    return number.to_bytes(20, "big")


def auth_record(key, salt):
    return b"\x01" + salt + hashlib.sha256(b"throughline auth record v1" + salt + key).digest()
