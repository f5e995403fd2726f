"""`report`: one file with everything in it, whatever the run holds."""

import base64
import html.parser
import re
import types

import numpy as np
import pytest

import tfp_lhnn
from tfp_lhnn.posterior.html_report import report
from tfp_lhnn.posterior.inference_data import az

CHAINS, DRAWS = 4, 200
VOID = {"meta", "link", "img", "br"}


class Page(html.parser.HTMLParser):
    """A page as its tags, its text by heading, and its references."""

    def __init__(self, text):
        super().__init__()
        self.open, self.references, self.tags, self.images = [], [], [], []
        self.sections, self.heading = {"": ""}, ""
        self.feed(text)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href"):
                self.references.append(value)
            if name == "src":
                self.images.append(value)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.heading = data
            self.sections[data] = ""
        elif self.open and self.open[-1] != "style":
            self.sections[self.heading] += data + " "


def make_run(num_variables=2, **attrs):
    generator = np.random.default_rng(1)
    shape = (CHAINS, DRAWS)
    x = generator.normal(size=(*shape, num_variables))
    lp = -0.5 * (x**2).sum(axis=-1)
    stats = {
        "lp": lp,
        "energy": 0.5 * generator.chisquare(num_variables, size=shape) - lp,
        "diverging": np.zeros(shape, bool),
        "fallback": generator.uniform(size=shape) < 0.05,
        "delayed_acceptance_rate": np.full(shape, 0.9),
        "network_energy": 0.1 * generator.normal(size=shape) - lp,
    }
    return az.InferenceData(
        posterior=az.dict_to_dataset({"x": x}),
        sample_stats=az.dict_to_dataset(stats),
        attrs={
            "target_gradients": 2_500,
            "target_evaluations": 4_321,
            "fit_gradients": 2_000,
            "fit_evaluations": 2_100,
            "seconds": 12.5,
            "seconds_fit": 10.0,
            "seconds_sampling": 2.5,
            "gradient_budget": 10_000,
            "method": "delayed_acceptance",
            "keras_version": "3.15.1",
        }
        | attrs,
    )


def make_fit():
    step = np.array([0, 250])
    history = tfp_lhnn.TrainingHistory(
        step=step,
        gradient_loss=np.array([np.nan, 0.1]),
        value_loss=np.array([np.nan, 0.1]),
        held_out_gradient_error=np.array([1.0, 0.1]),
        held_out_energy_error=np.array([1.0, 0.1]),
        energy_error=0.1,
        gradient_error=0.1,
        base_energy_error=1.0,
        selected="network",
        num_steps=250,
        seconds=1.0,
    )
    pilot = types.SimpleNamespace(
        kind="pilot",
        num_gradients=1_500,
        energy_error=np.nan,
        acceptance=np.nan,
        history=None,
    )
    refinement = types.SimpleNamespace(
        kind="refinement",
        num_gradients=2_000,
        energy_error=0.1234,
        acceptance=0.876,
        history=history,
    )
    return types.SimpleNamespace(
        rounds=[pilot, refinement], held_out=(np.arange(3.0), np.zeros(3))
    )


def read(path):
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "deep" / "page.html"
    written = report(make_run(), path, fit=make_fit(), title="My <model> & more")
    assert written == path
    return path


class TestFullPage:
    def test_sections(self, full):
        page = read(full)
        assert list(page.sections) == [
            "",
            "Summary",
            "Costs",
            "Posterior",
            "Traces and ranks",
            "Sampler and network",
            "Fit",
            "Settings",
            "Versions",
        ]
        assert "No warnings" in page.sections[""]
        # Two traces, energy, network error, two of fallbacks, two of training.
        assert len(page.images) == 8

    def test_nothing_comes_from_elsewhere(self, full):
        page, text = read(full), full.read_text(encoding="utf-8")
        assert all(reference.startswith("data:") for reference in page.references)
        assert "script" not in page.tags
        assert "url(" not in text
        assert "@import" not in text
        assert not re.search(r"https?://", text)
        for image in page.images:
            kind, data = image.split(",")
            assert kind == "data:image/png;base64"
            assert base64.b64decode(data, validate=True)[:4] == b"\x89PNG"

    def test_costs_by_phase(self, full):
        words = read(full).sections["Costs"].split()
        assert words[words.index("fit") :][:4] == ["fit", "2,000", "2,100", "10.0"]
        assert words[words.index("sampling") :][:4] == [
            "sampling",
            "500",
            "2,221",
            "2.5",
        ]
        assert words[words.index("total") :][:4] == ["total", "2,500", "4,321", "12.5"]
        assert "10,000." in words

    def test_rounds_of_the_fit(self, full):
        words = read(full).sections["Fit"].split()
        assert words[words.index("pilot") :][:5] == ["pilot", "1,500", "-", "-", "-"]
        assert words[words.index("refinement") :][:5] == [
            "refinement",
            "2,000",
            "0.123",
            "87.6%",
            "network",
        ]

    def test_the_title_is_text(self, full):
        text = full.read_text(encoding="utf-8")
        assert "<title>My &lt;model&gt; &amp; more</title>" in text
        assert "My <model> & more" in read(full).sections[""]

    def test_settings_and_versions(self, full):
        page = read(full)
        assert "delayed_acceptance" in page.sections["Settings"]
        assert "keras_version" not in page.sections["Settings"]
        assert "keras 3.15.1" in page.sections["Versions"]

    def test_phones_and_the_dark(self, full):
        text = full.read_text(encoding="utf-8")
        assert 'name="viewport"' in text
        assert "prefers-color-scheme: dark" in text
        assert text.isascii() or 'charset="utf-8"' in text


def test_warnings_come_first_and_are_escaped(tmp_path):
    run = make_run(fit_is_good=0, fit_message="<script>alert(1)</script> `a<b`")
    path = report(run, tmp_path / "page.html")
    page, text = read(path), path.read_text(encoding="utf-8")
    assert "1 warning " in page.sections[""]
    assert "<script>alert(1)</script>" in page.sections[""]
    assert "script" not in page.tags
    assert "<code>a&lt;b</code>" in text
    assert text.index('class="bad box"') < text.index("<h2>")


def test_names_and_attributes_are_escaped(tmp_path):
    run = make_run(method='"><img src=x>')
    names = {"<b>$x^": run.posterior["x"].values}
    run = az.InferenceData(posterior=az.dict_to_dataset(names), attrs=run.attrs)
    page = read(report(run, tmp_path / "page.html"))
    assert "b" not in page.tags
    assert "<b>$x^[1]" in page.sections["Posterior"]
    assert '"><img src=x>' in page.sections["Settings"]


def test_of_many_variables_the_worst_are_shown(tmp_path):
    run = make_run(num_variables=33)
    run.posterior["x"].values[:, :, 27] *= 1e-3
    # Hardly moves: the smallest ESS.
    run.posterior["x"].values[:, :, 27] += np.linspace(0.0, 1.0, DRAWS)
    page = read(report(run, tmp_path / "page.html"))
    table = page.sections["Posterior"]
    assert len(re.findall(r"x\[\d+\]", table)) == 20
    assert re.findall(r"x\[\d+\]", table)[0] == "x[27]"
    assert "13 more" in table
    assert len(page.images) == 6 + 4


@pytest.mark.parametrize("num_draws", [1, 2, 5])
def test_a_posterior_alone_and_few_draws(tmp_path, num_draws):
    draws = {"x": np.random.default_rng(0).normal(size=(1, num_draws))}
    run = az.InferenceData(posterior=az.dict_to_dataset(draws))
    page = read(report(run, tmp_path / "page.html"))
    assert list(page.sections) == ["", "Summary", "Posterior", "Traces and ranks"]
    assert "nan" not in " ".join(page.sections.values()).lower()


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_values_that_are_not_finite(tmp_path, bad):
    run = make_run()
    run.posterior["x"].values[0, 0, 0] = bad
    run.sample_stats["energy"].values[0, 0] = bad
    run.sample_stats["network_energy"].values[0, 0] = bad
    page = read(report(run, tmp_path / "page.html"))
    assert "No ESS could be computed for x[0]" in page.sections[""]


def test_a_page_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        report(make_run(), path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["page.html"]
    monkeypatch.undo()
    report(make_run(), str(path))
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [entry.name for entry in tmp_path.iterdir()] == ["page.html"]


def test_bad_input(tmp_path):
    with pytest.raises(TypeError, match="`inference_data` is a int"):
        report(3, tmp_path / "page.html")
    with pytest.raises(ValueError, match="no group `posterior`"):
        report(az.InferenceData(), tmp_path / "page.html")
    assert not list(tmp_path.iterdir())
