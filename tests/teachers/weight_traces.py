"""The published schedules a second time, from their formulas, in plain Python: what the presets must equal.

A trace has the distribution ``p`` before every choice and is told what the teacher is told. Nothing here comes from
``rota.teachers.weights``.
"""

import math
import statistics
from typing import ClassVar

FLOOR = 0.01


def softmax(logs):
    top = max(logs.values())
    return normalised({arm: math.exp(value - top) for arm, value in logs.items()})


def normalised(weights):
    total = math.fsum(weights.values())
    return {arm: weight / total for arm, weight in weights.items()}


def quantile(values, share):
    """By linear interpolation between the two nearest."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


class Trace:
    """``every``: updates between two changes; ``floor``: the least share."""

    every, floor = 4, FLOOR

    def __init__(self, room):
        self.room, self.arms = room, room.classroom.arms
        self.sizes = room.classroom.sizes
        self.q = normalised(self.prior())
        self.start_up()

    def prior(self):
        return dict.fromkeys(self.arms, 1.0)

    def start_up(self):
        """Most rules have nothing to prepare."""

    @property
    def p(self):
        count = len(self.arms)
        return {arm: (1 - count * self.floor) * share + self.floor for arm, share in self.q.items()}

    def after(self, decision, train_losses):
        """The updates of a decision are made; the student's step is that of the observation."""
        if self.room.step % self.every == 0:
            self.change(decision)

    def dev(self, step=None):
        return {arm: self.room.loss(arm, step) for arm in self.arms}

    def standardised(self, values):
        mean, deviation = statistics.fmean(values.values()), statistics.pstdev(values.values())
        return {arm: (value - mean) / deviation for arm, value in values.items()}

    def temperature_5(self):
        return {arm: size**0.2 for arm, size in self.sizes.items()}


class QuantileRewards(Trace):
    """Rewards in [-1, 1] by the 20 % and 80 % quantiles of those so far."""

    every = 10

    def start_up(self):
        self.log_w, self.history, self.count = dict.fromkeys(self.arms, 0.0), [], 0

    def reward(self, raw):
        self.history.append(raw)
        low, high = quantile(self.history, 0.2), quantile(self.history, 0.8)
        return max(-1.0, min(1.0, 2 * (raw - low) / (high - low) - 1)) if high > low else 0.0


class EXP3(QuantileRewards):
    """w_a += (gamma / K) r / p_a; p = 0.9 softmax(w) + 0.1 / K; r: relative gain of the joint loss."""

    gamma, limit = 5 * 4 / 20, 10.0  # 20 choices of 10 updates in 200

    def start_up(self):
        super().start_up()
        self.joint = None

    def scaled(self, raw):
        return self.reward(raw)

    def change(self, decision):
        before, self.joint = self.joint, statistics.fmean(self.dev().values())
        if before is None:
            return
        reward = self.scaled((before - self.joint) / before)
        estimate = max(-self.limit, min(self.limit, reward / self.p[decision.arm]))
        self.log_w[decision.arm] += self.gamma / 4 * estimate
        self.q = {arm: 0.9 * share + 0.1 / 4 for arm, share in softmax(self.log_w).items()}


class EXP3AsPublished(EXP3):
    every, floor, gamma, limit = 1, 0.0, 0.1, math.inf

    def scaled(self, raw):
        return raw


class EXP3S(QuantileRewards):
    """Graves et al. 2017, with the arm's own gain around its updates."""

    eta, epsilon, limit, horizon = 5 / 10, 0.05, 10.0, 10  # half of the 20 choices

    def change(self, decision):
        arm, every = decision.arm, self.every
        gain = self.room.loss(arm, self.room.step - every) - self.room.loss(arm)
        estimate = max(-self.limit, min(self.limit, self.reward(gain) / self.p[arm]))
        self.count += 1
        alpha = max(1 / self.count, 1 / self.horizon)
        risen = {each: self.log_w[each] + (self.eta * estimate if each == arm else 0.0) for each in self.arms}
        self.log_w = {
            each: math.log(
                (1 - alpha) * math.exp(risen[each])
                + alpha / 3 * math.fsum(math.exp(risen[other]) for other in self.arms if other != each)
            )
            for each in self.arms
        }
        self.q = {each: 0.95 * share + 0.05 / 4 for each, share in softmax(self.log_w).items()}


class EXP3SAsPublished(EXP3S):
    every, floor, eta, limit, horizon = 1, 0.0, 1e-3, math.inf, 200


class ODM(Trace):
    """Albalak et al. 2023 in the form of the paper; rewards are training losses, here as z-scores."""

    every, start, limit = 1, 10, 10.0

    def prior(self):
        return dict(self.sizes)

    def start_up(self):
        self.mean_reward, self.count, self.losses = dict.fromkeys(self.arms, 0.0), 0, []

    def reward(self, loss):
        self.losses.append(loss)
        deviation = statistics.pstdev(self.losses)
        return (loss - statistics.fmean(self.losses)) / deviation if deviation else 0.0

    def after(self, decision, train_losses):
        (loss,) = train_losses
        if self.room.step < self.start:
            return
        estimate = max(-self.limit, min(self.limit, self.reward(loss) / self.p[decision.arm]))
        self.mean_reward[decision.arm] = 0.9 * self.mean_reward[decision.arm] + 0.1 * estimate
        self.count += 1
        arms = len(self.arms)
        now, before = (
            1 / arms if count == 0 else min(1 / arms, math.sqrt(math.log(arms) / (arms * count)))
            for count in (self.count, self.count - 1)
        )
        best = softmax({arm: before * reward for arm, reward in self.mean_reward.items()})
        self.q = {arm: (1 - arms * now) * share + now for arm, share in best.items()}


class ODMAsPublished(ODM):
    floor, limit = 0.0, math.inf

    def reward(self, loss):
        return loss


class ChiIBR(Trace):
    """Zhou et al. 2021: q by bisection as in their code, but until the interval is closed."""

    every, rho = 5, 0.05
    baseline: ClassVar = {"az": 1.0, "be": 2.0, "tr": 1.5, "ru": 0.5}

    def prior(self):
        return dict(self.sizes)

    def start_up(self):
        self.average = {}

    def after(self, decision, train_losses):
        (loss,) = train_losses
        arm = decision.arm
        self.average[arm] = 0.9 * self.average[arm] + 0.1 * loss if arm in self.average else loss
        if self.room.step % self.every == 0:
            self.change()
            self.average = {}

    def change(self):
        excess = {arm: loss - self.baseline[arm] for arm, loss in self.average.items()}
        if max(excess.values()) < 0:
            excess = dict(self.average)
        neutral = statistics.fmean(excess.values())
        x, prior = {arm: excess.get(arm, neutral) for arm in self.arms}, normalised(self.prior())
        worst = prior if len(set(x.values())) == 1 else self.solve(x, prior)
        least = min(prior.values())
        self.q = normalised({arm: max(share, least) for arm, share in worst.items()})

    def solve(self, x, prior):
        def mixture(eta):
            mass = normalised({arm: prior[arm] * max(0.0, x[arm] - eta) for arm in self.arms})
            return normalised({arm: max(mass[arm] / prior[arm], 0.2) * prior[arm] for arm in self.arms})

        def divergence(eta):
            q = mixture(eta)
            return 0.5 * math.fsum(prior[arm] * (q[arm] / prior[arm] - 1) ** 2 for arm in self.arms)

        top = max(x.values())
        low, high = top - 1000 * (top - min(x.values())), math.nextafter(top, -math.inf)
        if divergence(high) <= self.rho:
            return mixture(high)
        for _ in range(300):
            middle = (low + high) / 2
            low, high = (low, middle) if divergence(middle) > self.rho else (middle, high)
        return mixture(low)


class Jean(Trace):
    """Jean et al. 2019: 1 / (min(1, s/b)^3 + 0.05), scores as exp(-loss)."""

    every = 10
    baseline: ClassVar = {"az": 2.0, "be": 2.5, "tr": 6.0, "ru": 1.5}

    def change(self, decision):
        ratios = {arm: min(1.0, math.exp(-loss) / math.exp(-self.baseline[arm])) for arm, loss in self.dev().items()}
        self.q = normalised({arm: 1 / (ratio**3 + 0.05) for arm, ratio in ratios.items()})


class LossSoftmax(Trace):
    """p proportional to the prior x exp(standardised smoothed dev loss)."""

    def prior(self):
        return self.temperature_5()

    def start_up(self):
        self.smoothed = None

    def change(self, decision):
        now = self.dev()
        old = self.smoothed or now
        self.smoothed = {arm: 0.7 * old[arm] + 0.3 * now[arm] for arm in self.arms}
        z = self.standardised(self.smoothed)
        self.q = normalised({arm: self.prior()[arm] * math.exp(z[arm]) for arm in self.arms})


class LossSoftmaxAsPublished(Trace):
    floor = 0.0

    def change(self, decision):
        self.q = softmax(self.dev())


class RelativeDecrease(Trace):
    """p proportional to the prior x exp(standardised (l_before - l) / l_before)."""

    def prior(self):
        return self.temperature_5()

    def start_up(self):
        self.before = None

    def change(self, decision):
        before, self.before = self.before, self.dev()
        if before is not None:
            z = self.standardised({arm: (before[arm] - self.before[arm]) / before[arm] for arm in self.arms})
            self.q = normalised({arm: self.prior()[arm] * math.exp(z[arm]) for arm in self.arms})


class SkillIt(Trace):
    """p_i proportional to exp(0.5 sum_j A_ij (sum of the last three losses of j)); az and tr are related."""

    def start_up(self):
        self.losses = []

    def edge(self, first, second):
        return 1.0 if first == second else 0.5 if {first, second} == {"az", "tr"} else 0.1

    def values(self):
        self.losses = [*self.losses, self.dev()][-3:]
        recent = {arm: sum(losses[arm] for losses in self.losses) for arm in self.arms}
        return {one: sum(self.edge(one, other) * recent[other] for other in self.arms) for one in self.arms}

    def change(self, decision):
        self.q = softmax({arm: 0.5 * value for arm, value in self.standardised(self.values()).items()})


class SkillItAsPublished(SkillIt):
    floor = 0.0

    def change(self, decision):
        self.q = softmax({arm: 0.5 * value for arm, value in self.values().items()})


class Gradients(Trace):
    """Base of those that follow gradients: the scripted student's effects take their place."""

    def rows(self):
        return {arm: {name: self.room.effect(arm, name) for name in self.arms} for arm in self.arms}

    def cosines(self):
        """Mean over the dev languages; the effects of an arm as a vector of length one."""
        return {
            arm: statistics.fmean(
                effect / math.sqrt(math.fsum(each**2 for each in row.values())) for effect in row.values()
            )
            for arm, row in self.rows().items()
        }


class Drift(Gradients):
    """The actor's closed form: logits towards log(R / sum R) by 0.02 at most, R at least 0.001."""

    def prior(self):
        return dict(self.sizes)

    def rewards(self):
        return self.cosines()

    def change(self, decision):
        reward = normalised({arm: max(0.001, value) for arm, value in self.rewards().items()})
        steps = {arm: math.log(reward[arm]) - math.log(self.q[arm]) for arm in self.arms}
        self.q = softmax({arm: math.log(self.q[arm]) + max(-0.02, min(0.02, step)) for arm, step in steps.items()})


class Adam(Drift):
    """The actor of the published code: 200 steps of Adam on - sum R log p, its moments kept from round to round."""

    floor = 0.0

    def start_up(self):
        self.psi = {arm: math.log(share) for arm, share in self.q.items()}
        self.m, self.v, self.t = dict.fromkeys(self.arms, 0.0), dict.fromkeys(self.arms, 0.0), 0

    def change(self, decision):
        reward = self.rewards()
        for _ in range(200):
            self.t += 1
            p = softmax(self.psi)
            for arm in self.arms:
                gradient = p[arm] * math.fsum(reward.values()) - reward[arm]
                self.m[arm] = 0.9 * self.m[arm] + 0.1 * gradient
                self.v[arm] = 0.999 * self.v[arm] + 0.001 * gradient**2
                mean, square = self.m[arm] / (1 - 0.9**self.t), self.v[arm] / (1 - 0.999**self.t)
                self.psi[arm] -= 1e-4 * mean / (math.sqrt(square) + 1e-8)
        self.q = softmax(self.psi)


class Uncertain(Drift):
    """MultiUAT: an entropy that is the loss, on the scripted student."""

    def rewards(self):
        return self.dev()


class UncertainAdam(Adam):
    def rewards(self):
        return self.dev()


class Zaremoodi(Gradients):
    """p proportional to the smoothed mean of <g_k, d_j> over the low-resource j, a thousandth of the most at least."""

    def start_up(self):
        self.smoothed = None

    def change(self, decision):
        now = {arm: (row["az"] + row["be"]) / 2 for arm, row in self.rows().items()}
        old = self.smoothed or now
        self.smoothed = {arm: 0.7 * old[arm] + 0.3 * now[arm] for arm in self.arms}
        most = max(self.smoothed.values())
        self.q = (
            normalised({arm: max(value, most / 1000) for arm, value in self.smoothed.items()})
            if most > 0
            else dict.fromkeys(self.arms, 0.25)
        )


class Multiplied(Gradients):
    """w_k <- w_k exp(eta x_k), from a uniform w."""

    eta = 5 / 50  # 50 changes in 200 updates

    def start_up(self):
        self.log_w = dict.fromkeys(self.arms, 0.0)

    def change(self, decision):
        for arm, value in self.scaled(self.values()).items():
            self.log_w[arm] += self.eta * value
        self.q = softmax(self.log_w)

    def scaled(self, values):
        return self.standardised(values)


class PiKE(Multiplied):
    """x = |g|^2 - variance / (2 x 32)."""

    def values(self):
        return {arm: self.room.effect(arm, arm) - 0.01 * self.room.loss(arm) / 64 for arm in self.arms}


class PiKEAsPublished(PiKE):
    floor, eta = 0.0, 1.0

    def scaled(self, values):
        return values


class DoGE(Multiplied):
    """x = mean over j of <g_k, d_j> / mean norm of the g."""

    def values(self):
        rows = self.rows()
        norm = statistics.fmean(math.sqrt(math.fsum(each**2 for each in row.values())) for row in rows.values())
        return {arm: statistics.fmean(row.values()) / norm for arm, row in rows.items()}


class DoGEAsPublished(DoGE):
    every, floor, eta = 1, 0.0, 0.01

    def scaled(self, values):
        return {arm: max(0.0, min(5.0, value)) for arm, value in values.items()}


class DynamixSFT(Gradients):
    """p proportional to the prior x exp(Q), Q the smoothed |g|^2 / loss, from 0 to 1 over the arms."""

    def prior(self):
        return dict(self.sizes)

    def start_up(self):
        self.smoothed = None

    def change(self, decision):
        now = {arm: self.room.effect(arm, arm) / (self.room.loss(arm) + 1e-8) for arm in self.arms}
        old = self.smoothed or now
        self.smoothed = {arm: 0.7 * old[arm] + 0.3 * now[arm] for arm in self.arms}
        low, high = min(self.smoothed.values()), max(self.smoothed.values())
        tilt = {arm: math.exp((value - low) / (high - low)) for arm, value in self.smoothed.items()}
        self.q = normalised({arm: self.sizes[arm] * tilt[arm] for arm in self.arms})
