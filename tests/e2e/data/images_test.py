"""Images beside Pillow and PyTorch: decoded pixels, resized pixels, and the listing of a folder of images."""
import io
import itertools
import os
import struct
import subprocess
import zlib

import numpy
import pytest
import torch
from PIL import Image, ImageOps

pytestmark = pytest.mark.tier_all  # training does not need pictures

UNCHANGED, GRAY, GRAY_ALPHA, RGB, RGB_ALPHA = range(5)
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class Images:
    """The C++ program, one answer a request."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, *words):
        self.process.stdin.write(" ".join(str(word) for word in words).encode() + b"\n")
        self.process.stdin.flush()
        kind, _, rest = self.process.stdout.readline().rstrip(b"\n").partition(b" ")
        if kind == b"error":
            return rest.decode()
        assert kind == b"ok", "the program has ended"
        numbers = [int(number) for number in rest.split()]
        data = self.process.stdout.read(numpy.prod(numbers, dtype=int))
        return numpy.frombuffer(data, numpy.uint8).reshape(numbers) if len(numbers) == 3 else data

    def decode(self, path, mode=RGB, min_side=0, exif=False):
        """[height, width, channels], or the text of an error."""
        planes = self.ask("decode", mode, min_side, int(exif), 0, path)
        pixels = self.ask("decode", mode, min_side, int(exif), 1, path)
        if isinstance(planes, str):
            assert planes == pixels
            return planes
        planes = planes.transpose(1, 2, 0)
        assert (planes == pixels.reshape(planes.shape)).all()
        return planes


@pytest.fixture
def images(programs):
    program = Images(programs / "image_pixels")
    yield program
    program.process.stdin.close()
    assert program.process.wait(timeout=300) == 0


def picture(mode="RGB", width=83, height=59):
    """Smooth in parts, with noise in it."""
    channels = len(Image.new(mode, (1, 1)).getbands())
    y, x, c = numpy.ogrid[:height, :width, :channels]
    noise = numpy.random.default_rng(7).integers(-12, 13, (height, width, channels))
    values = 128 + 100 * numpy.sin(x / (7 + c) + c) * numpy.cos(y / (9 - c)) + noise
    return Image.fromarray(values.clip(0, 255).astype(numpy.uint8).squeeze(), mode)


def pixels_of(path_or_image, mode="RGB"):
    image = path_or_image if isinstance(path_or_image, Image.Image) else Image.open(path_or_image)
    array = numpy.asarray(image.convert(mode))
    return array if array.ndim == 3 else array[:, :, None]


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_file(width, height, depth, color, interlaced=False, chunks=()):
    """Random pixels in a kind of PNG that Pillow reads, but does not write."""
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    random = numpy.random.default_rng(depth * 10 + color)
    rows = b""
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    for x, y, x_step, y_step in passes if interlaced else [(0, 0, 1, 1)]:
        pass_width, pass_height = -(-(width - x) // x_step), -(-(height - y) // y_step)
        row_size = (pass_width * channels * depth + 7) // 8
        if pass_width > 0:
            rows += b"".join(b"\0" + random.bytes(row_size) for _ in range(pass_height))
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunk(*part) for part in chunks)
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_png_files_of_pillow_have_its_pixels(images, tmp_path, mode):
    path = tmp_path / "a b.png"
    source = picture(mode if mode in ("L", "LA", "RGB", "RGBA") else "RGB")
    source.convert(mode).save(path)
    assert (images.decode(path) == pixels_of(path)).all()
    assert (images.decode(path, RGB_ALPHA) == pixels_of(path, "RGBA")).all()
    assert (images.decode(path, GRAY) == pixels_of(pixels_image(path), "L")).all()
    if mode in ("L", "LA", "RGB", "RGBA"):
        assert (images.decode(path, UNCHANGED) == pixels_of(path, mode)).all()


def pixels_image(path):
    """Without alpha, from which Pillow makes gray in another way for some modes."""
    image = Image.open(path)
    return image.convert("RGB") if image.mode in ("P", "RGBA") else image


KINDS = [(depth, color) for color, depths in {0: (1, 2, 4, 8), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8,), 6: (8, 16)}.items()
         for depth in depths]


@pytest.mark.filterwarnings("ignore:Palette images with Transparency")
@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("depth, color", KINDS)
def test_png_files_of_every_kind_have_pillows_pixels(images, tmp_path, depth, color, interlaced):
    palette = numpy.random.default_rng(3).bytes(3 * 2**depth)
    chunks = [(b"PLTE", palette), (b"tRNS", palette[:2**depth])] if color == 3 else []
    for width, height in [(1, 1), (3, 5), (21, 18)]:
        path = tmp_path / "a.png"
        path.write_bytes(png_file(width, height, depth, color, interlaced, chunks))
        assert (images.decode(path) == pixels_of(path)).all(), (width, height)
        assert (images.decode(path, RGB_ALPHA) == pixels_of(path, "RGBA")).all(), (width, height)


@pytest.mark.parametrize("depth, interlaced", [(16, False), (16, True)])
def test_of_16_bits_the_higher_8_count(images, tmp_path, depth, interlaced):
    """Pillow keeps gray of 16 bits as it is."""
    path = tmp_path / "a.png"
    path.write_bytes(png_file(21, 18, depth, 0, interlaced))
    assert (images.decode(path, GRAY)[:, :, 0] == numpy.asarray(Image.open(path)).astype(numpy.int64) >> 8).all()


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("mode, subsampling", [("RGB", 0), ("RGB", 1), ("RGB", 2), ("L", 0), ("CMYK", 0), ("CMYK", 2)])
def test_jpeg_files_have_pillows_pixels(images, tmp_path, mode, subsampling, progressive):
    path = tmp_path / "a.jpg"
    for quality in (30, 75, 95):
        picture(mode).save(path, quality=quality, subsampling=subsampling, progressive=progressive)
        assert (images.decode(path) == pixels_of(path)).all()
        assert (images.decode(path, RGB_ALPHA)[:, :, :3] == pixels_of(path)).all()
        if mode == "L":
            assert (images.decode(path, UNCHANGED) == pixels_of(path, "L")).all()
        if mode == "RGB":  # the file has brightness apart from color; so Pillow gets it
            gray = Image.open(path)
            gray.draft("L", gray.size)
            assert gray.mode == "L"
            assert (images.decode(path, GRAY) == pixels_of(gray, "L")).all()


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_smaller_jpegs_have_pillows_pixels(images, tmp_path, mode):
    path = tmp_path / "a.jpg"
    picture(mode, 203, 151).save(path, quality=90)
    for size, side in [(152, 151), (151, 151), (76, 76), (75, 76), (38, 38), (30, 38), (19, 19), (1, 19)]:
        found = images.decode(path, min_side=size)
        assert min(found.shape[:2]) == side
        smaller = Image.open(path)
        scale = round(151 / side)
        smaller.draft(mode, (203 // scale, 151 // scale))
        assert (found == pixels_of(smaller)).all(), size


def test_exif_orientation_is_pillows(images, tmp_path):
    for kind, orientation in itertools.product(("jpg", "png"), range(1, 9)):
        path = tmp_path / f"a.{kind}"
        exif = Image.Exif()
        exif[0x0112] = orientation
        picture().save(path, exif=exif)
        assert (images.decode(path) == pixels_of(path)).all()
        upright = ImageOps.exif_transpose(Image.open(path))
        assert (images.decode(path, exif=True) == pixels_of(upright)).all(), (kind, orientation)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 2}])
def test_a_truncated_jpeg_is_an_error_where_it_is_one_for_pillow(images, tmp_path, options):
    path = tmp_path / "a.jpg"
    picture("RGB", 40, 24).save(path, **options)
    whole = path.read_bytes()
    for size in [*range(0, len(whole), 29), *range(len(whole) - 12, len(whole) + 1)]:
        path.write_bytes(whole[:size])
        try:
            expected = pixels_of(path)
        except (OSError, SyntaxError):
            expected = None
        found = images.decode(path)
        assert (found == expected).all() if expected is not None else isinstance(found, str), size


def test_pillow_reads_what_is_written(images, tmp_path):
    for mode in ("L", "LA", "RGB", "RGBA"):
        pixels = pixels_of(picture(mode), mode)
        (tmp_path / "planes").write_bytes(pixels.transpose(2, 0, 1).tobytes())
        shape = (pixels.shape[2], pixels.shape[0], pixels.shape[1])
        png = Image.open(io.BytesIO(images.ask("encode", "png", *shape, tmp_path / "planes")))
        assert png.mode == mode and (pixels_of(png, mode) == pixels).all()
        if mode in ("L", "RGB"):
            jpeg = Image.open(io.BytesIO(images.ask("encode", "jpeg", *shape, tmp_path / "planes")))
            own = io.BytesIO()
            picture(mode).save(own, "JPEG", quality=75)
            assert jpeg.mode == mode and (pixels_of(jpeg, mode) == pixels_of(Image.open(own), mode)).all()


SIZES = [(375, 500), (256, 341), (224, 224), (37, 51), (480, 20), (9, 640), (64, 64), (7, 2), (1, 5), (2, 2)]


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", SIZES)
def test_resized_bytes_are_pytorchs(images, tmp_path, size, mode):
    """Bit for bit. (Results one pixel wide are wrong in LibTorch 2.13.)"""
    for channels, seed in [(3, 0), (1, 1)]:
        random = numpy.random.default_rng(seed)
        for kind in ("noise", "extremes"):
            pixels = random.integers(0, 256, (channels, *size), dtype=numpy.uint8)
            pixels = numpy.where(pixels < 128, 0, 255).astype(numpy.uint8) if kind == "extremes" else pixels
            (tmp_path / "planes").write_bytes(pixels.tobytes())
            for to in [(224, 224), (256, 341), (100, 33), (17, 500), (size[0], 40), (40, size[1]), (6, 2)]:
                found = images.ask("resample", mode, channels, *size, *to, 0, 0, *to, tmp_path / "planes")
                expected = torch.nn.functional.interpolate(torch.from_numpy(pixels)[None], to, mode=mode, antialias=True)
                assert (found == expected[0].numpy()).all(), (channels, kind, to)


def torchvisions_listing(root):
    """The rules of torchvision/datasets/folder.py."""
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    samples = []
    for index, name in enumerate(classes):
        for folder, _, names in sorted(os.walk(os.path.join(root, name), followlinks=True)):
            samples += [(index, os.path.join(folder, file)) for file in sorted(names) if file.lower().endswith(EXTENSIONS)]
    return "".join(f"{name}\n" for name in classes) + "".join(f"{index} {path}\n" for index, path in samples)


def test_a_folder_is_listed_as_torchvision_does(images, tmp_path):
    root = tmp_path / "root of all"
    for name in ["b/10.png", "b/9.PNG", "b/deep-er/1.jpg", "b/deep/er/2.jpeg", "b/deep.er/3.webp", "b/deep/0.txt", "a/\u00e9.png",
                 "a/z.png", "a/Z.TIFF", "\u00e4/1.bmp", "B/.hidden.jpg", "B/.d/x.pgm", "loose.png", "10/a.ppm", "9/a.ppm", "9/.jpg"]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    (root / "linked").symlink_to("b/deep")
    (root / "a" / "linked").symlink_to(root / "9")
    (root / "a" / "broken.png").symlink_to("nowhere")
    for given in (root, f"{root}/"):
        assert images.ask("list", 0, given).decode() == torchvisions_listing(given)
    (root / "empty").mkdir()
    assert images.ask("list", 1, root).decode() == torchvisions_listing(root)
    assert images.ask("list", 0, root) == ("Found no valid file for the classes empty. Supported extensions are: "
                                           + ", ".join(EXTENSIONS))
    assert images.ask("list", 0, root / "empty") == f"Couldn't find any class folder in {root / 'empty'}."
