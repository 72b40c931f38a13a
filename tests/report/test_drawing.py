"""What a figure of the report must be like, whatever it shows."""

from rota.report.figures.drawing import canvas, finish, legend_below


def test_labels_are_not_cut_off_when_the_layout_changes_the_ticks():
    with canvas(2.8) as (figure, [axes]):
        axes.plot([300, 1_050, 1_500], [0.02, 0.336, 0.17], label="a row")
        axes.set(ylim=(0, None), xlim=(0, None), ylabel="signal / noise", xlabel="step")
        legend_below(figure, axes)
        finish(figure, name="name", title="title", caption="caption", alt="alt")
        assert axes.yaxis.label.get_window_extent().x0 >= 0
