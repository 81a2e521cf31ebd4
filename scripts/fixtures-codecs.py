#!/usr/bin/env python3
"""Writes tests/data/codecs: encoded and decoded bytes of every codec, by numcodecs, Python's own modules and liblz4's tools.

Needs numcodecs (0.16) and numpy. Each case is a line of JSON in cases.jsonl.xz: the configuration, the encoded and the decoded
bytes in base64. Decoded bytes are what the third party *decodes*, not what was handed to it. Large decoded data is not
stored: it is one of the generators below, which the tests have too, named with its length.
"""

import base64, bz2, gzip, hashlib, itertools, json, lzma, pathlib, sys, zlib

import numcodecs
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "codecs"


def ramp(n):
    """Slowly growing 16-bit numbers: compressible, with structure in each byte."""
    return (np.arange(n // 2 + 1, dtype="<u4") * 7 // 5).astype("<u2").tobytes()[:n]


def noise(n):
    """xorshift32: incompressible."""
    out, x = bytearray(), 0x9E3779B9
    while len(out) < n:
        x ^= (x << 13) & 0xFFFFFFFF
        x ^= x >> 17
        x ^= (x << 5) & 0xFFFFFFFF
        out += x.to_bytes(4, "little")
    return bytes(out[:n])


def mixed(n):
    """The ramp, with 50 bytes of noise in each 500."""
    out, x = bytearray(ramp(n)), noise(n)
    for i in range(0, n, 500):
        out[i : i + 50] = x[i : i + 50]
    return bytes(out)


DATA = {"ramp": ramp, "noise": noise, "mixed": mixed, "zeros": lambda n: bytes(n), "repeat": lambda n: (noise(300) * (n // 300 + 1))[:n]}
out = []


def b64(b):
    return base64.b64encode(bytes(b)).decode()


def case(name, config, encoded, decoded, data=None):
    line = {"name": name, "config": config, "encoded": b64(encoded)}
    if data:
        line["data"], line["length"] = data
        assert DATA[data[0]](data[1]) == bytes(decoded), name
    else:
        line["decoded"] = b64(decoded)
    out.append(line)


def run(config, data, n, name=None):
    """Encode generated data with numcodecs and have it decode again."""
    raw = DATA[data](n)
    codec = numcodecs.get_codec(dict(config))
    try:
        encoded = bytes(np.asarray(memoryview(codec.encode(raw))).tobytes())
        decoded = bytes(np.asarray(memoryview(codec.decode(encoded))).tobytes())
    except Exception as e:
        print("skipped", config, data, n, repr(e), file=sys.stderr)
        return
    if decoded == raw:
        case(name or f"{config['id']} {data} {n}", config, encoded, decoded, (data, n))
    else:
        case(name or f"{config['id']} {data} {n}", config, encoded, decoded)


# Compressors and checksums, several lengths.
SIMPLE = [
    {"id": "gzip", "level": 5}, {"id": "zlib", "level": 6}, {"id": "bz2", "level": 1}, {"id": "lz4", "acceleration": 1},
    {"id": "zstd", "level": 3}, {"id": "zstd", "level": 3, "checksum": True}, {"id": "lzma", "format": 1},
    {"id": "lzma", "format": 1, "check": 0, "preset": 0}, {"id": "lzma", "format": 2, "preset": 1},
    {"id": "lzma", "format": 3, "filters": [{"id": 3, "dist": 4}, {"id": 33, "preset": 1}]},
    {"id": "lzma", "format": 3, "filters": [{"id": 0x4000000000000001, "preset": 6, "lc": 2, "lp": 1, "pb": 1, "dict_size": 65536}]},
    {"id": "lzma", "format": 3, "filters": [{"id": 4}, {"id": 33, "preset": 0}]},
]
for config in SIMPLE:
    for data, n in [("ramp", 0), ("ramp", 1), ("ramp", 37), ("mixed", 3001), ("zeros", 5000)]:
        run(config, data, n)
    run(config, "ramp", 12000)
CHECK = [
    {"id": "crc32"}, {"id": "crc32", "location": "end"}, {"id": "adler32"}, {"id": "adler32", "location": "end"},
    {"id": "crc32c"}, {"id": "crc32c", "location": "start"}, {"id": "fletcher32"}, {"id": "jenkins_lookup3"},
    {"id": "jenkins_lookup3", "initval": 12345, "prefix": None},
]
for config in CHECK:
    for data, n in [("ramp", 0), ("ramp", 1), ("noise", 11), ("noise", 12), ("noise", 13), ("noise", 721), ("mixed", 1501), ("zeros", 64)]:
        run(config, data, n)
for size in [0, 1, 2, 3, 4, 5, 8, 12, 16, 24]:
    for n in [0, size, 5 * size, 33 * size]:
        run({"id": "shuffle", "elementsize": size}, "noise", n)

# Blosc: every compressor, shuffle, element size and several block sizes.
class Typed(np.ndarray):
    pass

for cname, shuffle, size in itertools.product(["blosclz", "lz4", "lz4hc", "zlib", "zstd", "snappy"], [0, 1, 2], [1, 2, 3, 4, 8, 16, 17]):
    if cname not in numcodecs.blosc.list_compressors():
        continue
    for data, n, blocksize in [("ramp", 1535, 0), ("mixed", 2352, 1024)]:
        raw = DATA[data](n)
        count = n // size
        array = np.frombuffer(raw[: count * size], dtype=f"V{size}" if size not in (1, 2, 4, 8) else f"u{size}")
        codec = numcodecs.Blosc(cname=cname, clevel=5, shuffle=shuffle, blocksize=blocksize)
        encoded = codec.encode(array)
        decoded = bytes(codec.decode(encoded))
        case(f"blosc {cname} {shuffle} {size} {data} {n} {blocksize}", codec.get_config(), encoded, decoded, (data, count * size))
for cname in ["blosclz", "lz4", "zstd", "zlib", "lz4hc"]:
    for data, n, size, blocksize, clevel in [("ramp", 0, 4, 0, 5), ("ramp", 1, 1, 0, 5), ("noise", 600, 4, 0, 5), ("zeros", 100000, 8, 0, 9), ("ramp", 130000, 2, 0, 9), ("ramp", 8, 8, 0, 5),
                                   ("ramp", 500, 4, 0, 0), ("ramp", 7000, 4, 256, 5), ("ramp", 70002, 2, 32768, 1), ("ramp", 40000, 1, 4096, 3)]:
        array = np.frombuffer(DATA[data](n), dtype=f"u{size}")
        for shuffle in [1, 2]:
            codec = numcodecs.Blosc(cname=cname, clevel=clevel, shuffle=shuffle, blocksize=blocksize)
            try:
                encoded = codec.encode(array)
                decoded = bytes(codec.decode(encoded))
            except Exception as e:
                print("skipped", cname, data, n, repr(e), file=sys.stderr)
                continue
            if len(encoded) > 2500:
                continue
            case(f"blosc {cname} {shuffle} {size} {data} {n} {blocksize} {clevel}", codec.get_config(), encoded, decoded, (data, n))

# Filters that calculate: random stored bytes are decoded, which is what a reader meets.
def numeric(config, encoded):
    codec = numcodecs.get_codec(dict(config))
    with np.errstate(all="ignore"):
        decoded = np.asarray(codec.decode(encoded)).tobytes()
    case(f"{config['id']} {config.get('astype', config.get('encode_dtype'))} {config.get('dtype', config.get('decode_dtype'))} {len(encoded)}", config, np.asarray(encoded).tobytes(), decoded)

rng = np.random.default_rng(7)
INTS = ["|i1", "|u1", "<i2", ">i2", "<u2", "<i4", ">u4", "<i8", ">i8", "<u8"]
FLOATS = ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"]

def values(dtype, n, small=False):
    d = np.dtype(dtype)
    if d.kind == "f":
        v = rng.normal(0, 5, n).astype(d)
        if not small:
            v[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(d).tiny / 2]
            v[6:8] = [np.finfo(d).max, np.finfo(d).smallest_subnormal]
        return v
    if small:
        return rng.integers(0, 100, n).astype(d)
    return np.frombuffer(rng.bytes(n * d.itemsize), dtype=d)

for dtype, astype in itertools.product(INTS, INTS):
    kinds = {np.dtype(t).kind + str(np.dtype(t).itemsize) for t in (dtype, astype)}
    if "u8" in kinds and any(k[0] == "i" for k in kinds):
        continue
    numeric({"id": "delta", "dtype": dtype, "astype": astype}, values(astype, 21))
for dtype, astype in itertools.product(FLOATS, FLOATS + INTS):
    numeric({"id": "delta", "dtype": dtype, "astype": astype}, values(astype, 40, small=True))
for dtype, astype in itertools.product(["<i2", "<i4", ">i8"], FLOATS):
    numeric({"id": "delta", "dtype": dtype, "astype": astype}, values(astype, 20, small=True))
numeric({"id": "delta", "dtype": "<f4", "astype": "<f4"}, values("<f4", 20))
numeric({"id": "delta", "dtype": "<i4"}, np.array([], "<i4"))
for dtype, astype in itertools.product(FLOATS, INTS + FLOATS):
    for scale, offset in [(10, 1000), (3.7, -10.5)]:
        numeric({"id": "fixedscaleoffset", "dtype": dtype, "astype": astype, "scale": scale, "offset": offset}, values(astype, 24))
for dtype, astype in itertools.product(["<i4", ">i8"], ["|u1", "<i2", "<f4", "<f8"]):
    numeric({"id": "fixedscaleoffset", "dtype": dtype, "astype": astype, "scale": 10, "offset": 1000}, values(astype, 24, small=True))
for enc, dec in itertools.product(INTS + FLOATS + ["|b1"], INTS + FLOATS + ["|b1"]):
    floats_to_ints = np.dtype(enc).kind == "f" and np.dtype(dec).kind in "iu"
    v = values(enc, 20, small=floats_to_ints) if enc != "|b1" else rng.integers(0, 2, 20).astype(bool)
    if floats_to_ints:
        v = np.abs(v).astype(enc)
    numeric({"id": "astype", "encode_dtype": enc, "decode_dtype": dec}, v)
for dtype, astype in itertools.product(FLOATS, FLOATS):
    numeric({"id": "quantize", "digits": 2, "dtype": dtype, "astype": astype}, values(astype, 20))
for n in [0, 1, 7, 8, 9, 64, 1001]:
    codec = numcodecs.PackBits()
    bits = rng.integers(0, 2, n).astype(bool)
    encoded = codec.encode(bits)
    case(f"packbits {n}", {"id": "packbits"}, encoded.tobytes(), codec.decode(encoded).tobytes())
codec = numcodecs.BitRound(5)
encoded = np.asarray(codec.encode(values("<f4", 20, small=True)))
case("bitround", codec.get_config(), encoded.tobytes(), np.asarray(codec.decode(encoded)).tobytes())

# Concatenated streams and padding, as the formats' own tools allow.
a, b = ramp(3000)[:1000], ramp(3000)[1000:]
whole = (("ramp", 3000))
gz = lambda x: gzip.compress(x, mtime=0)
case("gzip of two members", {"id": "gzip"}, gz(a) + gz(b), gzip.decompress(gz(a) + gz(b)), whole)
case("gzip of an empty and a full member", {"id": "gzip"}, gz(b"") + gz(a + b), gzip.decompress(gz(b"") + gz(a + b)), whole)
case("gzip of a full and an empty member", {"id": "gzip"}, gz(a + b) + gz(b""), gzip.decompress(gz(a + b) + gz(b"")), whole)
case("gzip with padding", {"id": "gzip"}, gz(a + b) + bytes(17), gzip.decompress(gz(a + b) + bytes(17)), whole)
case("bz2 of two streams", {"id": "bz2"}, bz2.compress(a) + bz2.compress(b), bz2.decompress(bz2.compress(a) + bz2.compress(b)), whole)
xz = lzma.compress(a) + lzma.compress(b)
case("xz of two streams", {"id": "lzma"}, xz, lzma.decompress(xz), whole)
zs = numcodecs.Zstd(level=1)
frames = bytes(zs.encode(a)) + b"\x53\x2a\x4d\x18\x05\x00\x00\x00skip!" + bytes(zs.encode(b))
from backports import zstd as bz
case("zstd of two frames and a skippable one", {"id": "zstd"}, frames, bz.decompress(frames), whole)
compressor = bz.ZstdCompressor(options={bz.CompressionParameter.content_size_flag: 0, bz.CompressionParameter.checksum_flag: 1})
stream = compressor.compress(a) + compressor.compress(b) + compressor.flush()
case("zstd without content size", {"id": "zstd"}, stream, bz.decompress(stream), whole)
case("zlib in N5's gzip", {"id": "gzip", "n5": {"type": "gzip", "useZlib": True}}, zlib.compress(a + b), a + b, whole)

# LZ4 frames, by liblz4's frame API in libarchive's or lz4's Python binding.
import lz4.frame
for linked, checks, size, block in itertools.product([True, False], [True, False], [True, False], [0, 4]):
    n = 70000 if block == 4 else 1500
    data = "repeat" if block == 4 else "mixed"
    raw = DATA[data](n)
    encoded = lz4.frame.compress(raw, block_size=block, block_linked=linked, content_checksum=checks, block_checksum=checks, store_size=size)
    case(f"lz4 frame linked {linked} checksums {checks} size {size} {n}", {"id": "lz4", "n5": {"type": "lz4"}}, encoded, lz4.frame.decompress(encoded), (data, n))
two = lz4.frame.compress(a) + lz4.frame.compress(b)
case("lz4 of two frames", {"id": "lz4", "n5": {"type": "lz4"}}, two, lz4.frame.decompress(lz4.frame.compress(a)) + lz4.frame.decompress(lz4.frame.compress(b)), whole)
import lz4.block
for data, n in [("ramp", 3000), ("noise", 100), ("zeros", 1000), ("ramp", 1)]:
    raw = DATA[data](n)
    encoded = lz4.block.compress(raw, store_size=False)
    case(f"lz4 bare block {data} {n}", {"id": "lz4", "n5": {"type": "lz4"}}, encoded, lz4.block.decompress(encoded, uncompressed_size=n), (data, n))
    encoded = lz4.block.compress(raw, store_size=True)
    case(f"lz4 prefixed block {data} {n}", {"id": "lz4", "n5": {"type": "lz4"}}, encoded, lz4.block.decompress(encoded), (data, n))

# Java's LZ4BlockOutputStream, put together from liblz4's blocks and xxhash: magic, method and level, lengths, checksum.
import xxhash

def records(raw, size, level):
    result = bytearray()
    for part in [raw[i : i + size] for i in range(0, len(raw), size)] + [b""]:
        packed = lz4.block.compress(part, store_size=False) if part else b""
        stored = not part or len(packed) >= len(part)
        data = part if stored else packed
        sum = xxhash.xxh32_intdigest(part, seed=0x9747B28C) & 0x0FFFFFFF if part else 0
        result += b"LZ4Block" + bytes([(0x10 if stored else 0x20) | level])
        result += len(data).to_bytes(4, "little") + len(part).to_bytes(4, "little") + sum.to_bytes(4, "little") + data
    return bytes(result)

for data, n, size, level in [("ramp", 3000, 65536, 6), ("mixed", 5000, 1024, 0), ("noise", 100, 64, 0), ("ramp", 0, 64, 0)]:
    case(f"lz4 records {data} {n}", {"id": "lz4", "n5": {"type": "lz4"}}, records(DATA[data](n), size, level), DATA[data](n), (data, n))
case("lz4 of two streams of records", {"id": "lz4", "n5": {"type": "lz4"}}, records(a, 1024, 0) + records(b, 65536, 6), a + b, whole)

HERE.mkdir(parents=True, exist_ok=True)
text = "".join(json.dumps(c) + "\n" for c in out)
(HERE / "cases.jsonl.xz").write_bytes(lzma.compress(text.encode(), preset=9))
print(len(out), "cases", (HERE / "cases.jsonl.xz").stat().st_size, "bytes")
