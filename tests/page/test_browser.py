"""The pages in a real browser: the film moves, the right cell is marked, the console stays empty, it opens fast."""

from __future__ import annotations

import time

from harness.page.render import film_page, summary_page
from harness.page.summary import summary_of
from tests.page.conftest import DRAFTED, film, long_trace
from tests.page.test_summary import DATA


def where(page):
    return page.text_content("#where")


def cells(page, row):
    return [cell.text_content() for cell in page.query_selector_all(f"{row} .cell")]


def test_it_opens_at_the_difference(look, planted):
    assert "step 4 of 4" == where(look(film_page(planted)))


def test_the_differing_cells_are_marked(look, planted):
    """Request 1, group 0: the real row is [9 10], the expected one [9 10 11]; column 2 alone differs."""
    page = look(film_page(planted))
    marked = page.query_selector_all('[data-row="1/0"] .differs')

    assert ["2"] == [cell.get_attribute("data-column") for cell in marked]
    assert ["9", "10", "\u2013"] == cells(page, '[data-row="1/0"]')
    assert ["9", "10", "11"] == cells(page, '[data-expected="1/0"]')
    assert [] == page.query_selector_all('[data-row="0/0"] .differs')


def test_the_slider_moves_the_film(look, planted):
    page = look(film_page(planted))
    page.fill("#slider", "0")

    assert "step 0 of 4" == where(page)
    assert ["1", "2", "3", "4"] == cells(page, '[data-row="0/0"]')
    assert page.query_selector('[data-row="1/0"]') is None


def test_keys_move_the_film(look, planted):
    page = look(film_page(planted))
    seen = []
    for key in ("ArrowLeft", "ArrowLeft", "Home", "ArrowRight", "End", "Home", "d"):
        page.keyboard.press(key)
        seen.append(where(page).split()[1])

    assert ["3", "2", "0", "1", "4", "0", "4"] == seen


def test_keys_on_the_slider_move_once(look, planted):
    page = look(film_page(planted))
    page.focus("#slider")
    page.keyboard.press("ArrowLeft")

    assert "step 3 of 4" == where(page)


def test_play_goes_to_the_end_and_stops(look, planted):
    page = look(film_page(planted))
    page.keyboard.press("Home")
    page.select_option("#speed", "25")
    page.click("#play")
    page.wait_for_function("document.getElementById('play').textContent === 'Play'")

    assert "step 4 of 4" == where(page)


def test_a_window_shows_what_was_removed_and_freed(look):
    page = look(film_page(film(long_trace(300))))
    freed = page.query_selector_all(".pool .freed")
    for _ in range(300):
        page.keyboard.press("ArrowRight")
        freed = page.query_selector_all(".pool .freed")
        if freed:
            break

    assert freed
    assert page.query_selector(".cell.null") is not None


def test_the_step_is_there_as_a_table(look, planted):
    page = look(film_page(planted))
    page.click("#plain summary")
    page.wait_for_selector("#plain tbody tr")
    rows = [row.inner_text().split("\t") for row in page.query_selector_all("#plain tbody tr")]

    assert ["1", "0 full_attention", "9 10"] in rows


def test_all_steps_are_there_as_a_table(look, planted):
    page = look(film_page(planted))
    page.click("#steps summary")
    page.click('#steps a[href="#step=1"]')
    page.wait_for_function("document.getElementById('where').textContent.startsWith('step 1 ')")

    assert 5 == len(page.query_selector_all("#steps tbody tr"))


def test_no_operation_is_said(look):
    page = look(film_page(film(DRAFTED) | {"frames": []}))

    assert "No operation was run." == page.text_content("#words")


def test_ten_thousand_steps_open_in_two_seconds(look):
    text = film_page(film(long_trace(10_000)))
    look("<title>warm</title>")
    start = time.monotonic()
    page = look(text)
    page.wait_for_selector("#where:not(:empty)")
    took = time.monotonic() - start
    page.fill("#slider", "9999")

    assert "step 9999 of 9999" == where(page)
    assert took < 2


def test_dark_is_dark(look, planted):
    page = look(film_page(planted))
    seen = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        seen.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    assert ["rgb(255, 255, 255)", "rgb(20, 23, 28)"] == seen


def test_the_summary_is_drawn(look, tmp_path):
    page = look(summary_page(summary_of(DATA, tmp_path / "run.html", {"trim": 5}, [(1.0, 9), (2.0, 30)], [])))

    assert 1 == len(page.query_selector_all(".meter i.missed"))
    assert page.query_selector("polyline").bounding_box()["width"] > 100
