"""What a figure of the report must be like, whatever it shows."""

import pytest

from rota.report.figures.drawing import canvas, finish, language_legend, legend_below


def test_labels_are_not_cut_off_when_the_layout_changes_the_ticks():
    with canvas(2.8) as (figure, [axes]):
        axes.plot([300, 1_050, 1_500], [0.02, 0.336, 0.17], label="a row")
        axes.set(ylim=(0, None), xlim=(0, None), ylabel="signal / noise", xlabel="step")
        legend_below(figure, axes)
        finish(figure, name="name", title="title", caption="caption", alt="alt")
        assert axes.yaxis.label.get_window_extent().x0 >= 0


@pytest.mark.parametrize(("legend", "columns"), [(legend_below, 4), (language_legend, 8)])
def test_the_legend_of_sixty_languages_leaves_the_axes_their_room_and_is_not_cut_off(legend, columns):
    with canvas(2.8) as (figure, [axes]):
        for number in range(63):
            axes.plot([0, 1], [0, number], label=f"lan{number}-en 1.5%")
        legend(figure, axes, columns)
        finish(figure, name="name", title="title", caption="caption", alt="alt")
        (below,) = figure.legends
        of_legend, of_axes = below.get_window_extent(), axes.get_window_extent()
        assert of_axes.height / figure.dpi > 1.2, "inches"
        assert of_legend.y1 < of_axes.y0
        assert 0 <= of_legend.x0 < of_legend.x1 <= figure.bbox.x1
