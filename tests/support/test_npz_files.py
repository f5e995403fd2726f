"""Array files: what damage, strangers and zip bombs may do."""

import io
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from tfp_lhnn.evaluation.training_data import TrainingData
from tfp_lhnn.support.npz_files import read_npz, write_npz

ARRAYS = {
    "matrix": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "number": np.float32(2.5),
    "text": np.array(["a", "ü"]),
    "none": np.zeros([0, 3], np.int8),
    "flags": np.array([True, False]),
}


def header(shape, dtype="<f8"):
    file = io.BytesIO()
    fields = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, fields)
    return file.getvalue()


def member_file(path, content, method=zipfile.ZIP_STORED):
    """A file of one array, `x`, and its version."""
    version = io.BytesIO()
    np.save(version, np.array(1))
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("format_version.npy", version.getvalue())
        archive.writestr("x.npy", content)
    return path


def test_arrays_come_back(tmp_path):
    path = tmp_path / "file"
    write_npz(path, 3, ARRAYS)
    for names in (None, list(ARRAYS)):
        read = read_npz(path, 3, names, "test")
        assert set(read) == set(ARRAYS)
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(read[name], array)
            assert read[name].dtype == array.dtype
        read["matrix"][0, 0] = 7.0  # it may be written to
    assert set(read_npz(path, 3, ["number"], "test")) == {"number"}
    with pytest.raises(ValueError, match="format version 3; expected 4"):
        read_npz(path, 4, ["absent"], "test")
    with pytest.raises(ValueError, match="no absent"):
        read_npz(path, 3, ["absent"], "test")


def refused_cheaply(read, path, message):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=rf"file.*{message}"):
            read(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20e6


def read_x(path):
    return read_npz(path, 1, ["x"], "test")


@pytest.mark.parametrize("read", [read_x, TrainingData.load])
def test_a_zip_bomb_is_refused_before_it_goes_off(tmp_path, read):
    zeros = np.zeros(10**7)
    fields = dict.fromkeys(("position", "momentum", "log_prob", "x"), zeros)
    np.savez_compressed(tmp_path / "file", format_version=1, **fields)
    path = tmp_path / "file.npz"
    assert path.stat().st_size < 1e6
    refused_cheaply(read, path, "compressed")


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((10**9,), "<f8"),
        ((10**13,), "<f8"),
        ((2**40, 2**40), "<f8"),
        ((0, 5), "<f8"),
        ((1,), "<f8"),
        ((10**12,), "|V0"),
    ],
)
def test_a_header_must_match_what_follows(tmp_path, shape, dtype):
    data = b"" if dtype == "|V0" else bytes(16)
    path = member_file(tmp_path / "file", header(shape, dtype) + data)
    refused_cheaply(read_x, path, "claims an array of shape")


def test_members_cannot_be_larger_than_the_file(tmp_path):
    path = member_file(tmp_path / "file", header((2,)) + bytes(16))
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    content[entry + 20 : entry + 28] = struct.pack("<II", 2**31, 2**31)
    path.write_bytes(content)
    refused_cheaply(read_x, path, "the file has only")
    content[entry + 20 : entry + 24] = struct.pack("<I", 144)
    path.write_bytes(content)
    refused_cheaply(read_x, path, "compressed")


def test_one_name_twice(tmp_path):
    path = tmp_path / "file"
    content = header((2,)) + bytes(16)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", content)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("x.npy", content)
    with pytest.raises(ValueError, match="x is there twice"):
        read_x(path)


def test_no_memory_is_said_plainly(tmp_path, monkeypatch):
    write_npz(tmp_path / "file", 1, {"x": np.zeros(3)})

    def no_memory(*_, **__):
        raise MemoryError("Unable to allocate 1.4 GiB")

    monkeypatch.setattr(np.lib.format, "read_array", no_memory)
    with pytest.raises(ValueError, match=r"file does not fit into memory.*1\.4 GiB"):
        read_x(tmp_path / "file")


def test_python_objects_are_not_read(tmp_path):
    path = tmp_path / "file.npz"
    np.savez(path, format_version=1, x=np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match="Python objects"):
        read_x(path)


def test_flipped_bits_are_value_errors_or_nothing(tmp_path):
    path = tmp_path / "file"
    write_npz(path, 1, {"x": np.arange(5.0)})
    good = path.read_bytes()
    noticed = 0
    for place in range(len(good)):
        for bit in (0, 3, 7):
            bad = bytearray(good)
            bad[place] ^= 1 << bit
            path.write_bytes(bad)
            try:
                read = read_x(path)
            except ValueError as error:
                noticed += "file" in str(error)
            else:  # bits that mean nothing (dates) may be anything
                np.testing.assert_array_equal(read["x"], np.arange(5.0))
    assert noticed > len(good)
