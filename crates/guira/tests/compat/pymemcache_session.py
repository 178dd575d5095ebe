"""A day in the life of pymemcache: every command it has, against the server on the port given; a cluster's values have a given length at most."""

import sys

from pymemcache.client.base import Client, PooledClient
from pymemcache.exceptions import MemcacheClientError, MemcacheIllegalInputError, MemcacheServerError

address = ("127.0.0.1", int(sys.argv[1]))
is_cluster = len(sys.argv) > 2
length_max = int(sys.argv[2]) if is_cluster else 1_000_000
client = Client(address, timeout=30, connect_timeout=30, no_delay=True)

assert client.version()[0:1].isdigit()
assert client.flush_all(noreply=False)

assert client.set("greeting", b"hello", noreply=False)
assert client.get("greeting") == b"hello"
assert client.get("nothing") is None
assert client.get("nothing", default=b"else") == b"else"
assert client.add("greeting", b"again", noreply=False) is False
assert client.add("fresh", b"1", noreply=False) is True
assert client.replace("greeting", b"bye", noreply=False) is True
assert client.replace("nothing", b"bye", noreply=False) is False
assert client.append("greeting", b"-bye", noreply=False) is True
assert client.prepend("greeting", b"good", noreply=False) is True
assert client.get("greeting") == b"goodbye-bye"

many = {f"key{number}": f"value{number}".encode() * number for number in range(1, 200)}
assert client.set_many(many, noreply=False) == []
assert client.get_many(list(many) + ["nothing"]) == many
versions = client.gets_many(["key1", "key2", "nothing"])
assert set(versions) == {"key1", "key2"} and versions["key1"][0] == b"value1"

value, version = client.gets("key3")
assert client.cas("key3", b"newer", version, noreply=False) is True
assert client.cas("key3", b"too late", version, noreply=False) is False
assert client.cas("nothing", b"?", version, noreply=False) is None
assert client.get("key3") == b"newer"

assert client.set("number", b"18446744073709551615", noreply=False)
assert client.incr("number", 2) == 1
assert client.decr("number", 5) == 0
assert client.incr("nothing", 1) is None
try:
    client.incr("greeting", 1)
    raise AssertionError("incr of what is not a number")
except MemcacheClientError:
    pass

assert client.touch("greeting", 1000, noreply=False) is True
assert client.touch("nothing", 1000, noreply=False) is False

assert client.set("gone", b"already", expire=-1, noreply=False)
assert client.get("gone") is None
assert client.delete("greeting", noreply=False) is True
assert client.delete("greeting", noreply=False) is False
assert client.delete_many(["key1", "key2"], noreply=False)
assert client.get_many(["key1", "key2"]) == {}

# Without waiting for answers: the next answered command must not see theirs.
for number in range(1000):
    client.set("quiet", str(number).encode(), noreply=True)
assert client.get("quiet") == b"999"
client.delete("quiet", noreply=True)
assert client.get("quiet") is None

# Binary values of every length around the sizes of buffers.
for length in [0, 1, 7, 8, 9, 1023, 1024, 2048, 16383, 16384, 16385, 100_000, 1_000_000]:
    if length > length_max:
        continue
    value = bytes(position * 31 % 256 for position in range(length))
    assert client.set("binary", value, flags=length % 65536, noreply=False)
    assert client.get("binary") == value, length

try:
    client.set("large", b"x" * (2 << 20), noreply=False)
    raise AssertionError("a value over the limit was stored")
except MemcacheServerError as error:
    assert "too large" in str(error), error
assert client.get("large") is None

try:
    client.get("k" * 251)
    raise AssertionError("a key over the limit")
except MemcacheIllegalInputError:
    pass

assert client.raw_command(b"mn", end_tokens=b"\r\n") == b"MN"
assert client.raw_command(b"mg fresh v k f", end_tokens=b"\r\n") == b"VA 1 kfresh f0"
client.close()

# A gateway has no items of its own.
assert is_cluster or int(client.stats()[b"curr_items"]) > 0
assert client.flush_all(noreply=False)
assert client.get("fresh") is None

pooled = PooledClient(address, max_pool_size=8, timeout=30)
for number in range(100):
    assert pooled.set(f"pooled{number}", b"x", noreply=False)
assert len(pooled.get_many([f"pooled{number}" for number in range(100)])) == 100
pooled.close()
print("all is well")
