"""Networks of dense layers and convolutions, what losses compute of them, and Adam, compiled; bits depend on no processor.

Arrays are float32 and have no gaps, but for the inputs of a network, whose rows may be apart, and which are bytes if it convolves
these. Functions have a signature with sizes, explained in ``_c/arguments.h``; an error says which argument does not fit.
"""

from typing import Any, final

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float32]
_Integers = npt.NDArray[np.int64]
_Masks = npt.NDArray[np.bool_]
_Statistics = tuple[_Floats, _Floats, _Integers, float, float, float, int]
_Images = tuple[int, ...] | tuple[int, int, int, int, int, int, int, int, int, float, bool]
_Layer = tuple[
    str, int, int, int, float, _Floats | None, _Floats | None, _Floats | None, _Floats | None, _Floats, _Floats | None,
    _Statistics | _Images | None,
]  # fmt: skip

LEAF: int
"""Rows of a leaf of the trees that sums over rows are."""

def kinds() -> list[str]:
    """Kinds of code that this processor can run, the fastest first; ``"portable"`` is the last."""

def using() -> str:
    """The kind in use."""

def use(name: str, /) -> None:
    """Use a kind from now on."""

def check(name: str, /) -> bool:
    """Whether a kind gives the bits of the portable one, for a few products and random arguments of all functions."""

@final
class Network:
    """Layers that follow each other, for one number of rows.

    Each is a tuple: name (``"linear"``, ``"layer_norm"``, ``"batch_renorm"``, ``"convolution"``, ``"flatten"``, or ``"activation"``
    for nothing but that), activation (0 none, 1 ReLU, 2 tanh), numbers of inputs and outputs, what a normalisation adds to the
    variance, weight, bias, and where gradients of both, the outputs and the gradient of the inputs go. Batch renormalisation has
    behind them running means, running variances and the number of steps, which are overwritten, momentum, bounds of its ratio and
    its shift, and the steps before it is any.

    A convolution has behind them height, width and channels of images, the kernel's height and width, strides and padding downwards
    and to the right, and for inputs that are bytes what they are divided by, 1 or 255, and whether each channel lies by itself. In
    all other arrays images are height x width x channels. What flattens has their channels behind it.
    """

    def __new__(cls, rows: int, layers: tuple[_Layer, ...], /) -> Network: ...
    def run(self, inputs: _Floats | npt.NDArray[np.uint8], /, *networks: Network) -> None:
        """Overwrite what the layers give for inputs, ``(rows, inputs)``, and what those of other networks give for the same."""

    def run_together(self, inputs: _Floats, /, *networks: Network) -> None:
        """The same, batches being normalised by their own statistics, from which the running ones learn."""

    def back(self, gradient: _Floats, /, *networks: Network | _Floats) -> None:
        """Overwrite the gradients of parameters and inputs, from that of the outputs, which may be overwritten.

        Other networks that do so too are followed by their gradient, each.
        """

    def slopes(
        self,
        gradient: _Floats,
        rows: _Integers | None,
        first: int,
        out: _Floats,
        /,
        *networks: Network | _Floats | _Integers | None,
    ) -> None:
        """The gradient by the inputs from ``first`` on, of some rows; ``gradient``, by their outputs, may be overwritten.

        Other networks are followed by their gradient, rows and out, each.
        """

    def least(self, values: _Floats, first: int, least: _Floats, out: _Floats, /, *networks: Network) -> None:
        """The least of the values that networks have given for each row, ``(networks, rows)``, and its gradient by the inputs.

        Inputs count from ``first`` on.
        """

@final
class Team:
    """Threads that help the one that enters it. Who computes what changes no bit.

    Raises:
        ValueError: If there is not even that one.
        RuntimeError: When a thread enters that is in a team.
    """

    def __new__(cls, threads: int, /) -> Team: ...
    def __enter__(self) -> Team: ...
    def __exit__(self, kind: Any, error: Any, traceback: Any, /) -> None: ...
    def close(self) -> None:
        """End the threads."""

# What follows is made of the signatures in _c, by .ci/stubs.py.

def squashed_gaussian(
    mean: _Floats, log_std: _Floats, noise: _Floats, actions: _Floats, spread: _Floats, slack: _Floats, log_prob: _Floats,
    terms: _Floats, low: float, high: float, /,
) -> None:  # fmt: skip
    """Actions of squashed normal distributions, log_std within bounds, and their log-probabilities; ``terms`` is room.

    ::

        mean[r,n] log_std[r,n] noise[r,n] > actions[r,n] spread[r,n] slack[r,n] log_prob[r] terms[r,n] low:float high:float
    """

def squashed_gaussian_sample(
    count: int, outputs: _Floats, noise: _Floats | None, actions: _Floats, low: float, high: float, /,
) -> None:  # fmt: skip
    """The actions alone, of means and log_std side by side; without noise those of the means.

    ::

        count:size[n] outputs[r,2n] noise?[r,n] > actions[r,n] low:float high:float
    """

def squashed_gaussian_backward(
    by_actions: _Floats, by_log_prob: float, actions: _Floats, spread: _Floats, slack: _Floats, log_std: _Floats,
    grad_mean: _Floats, grad_log_std: _Floats, low: float, high: float, /,
) -> None:  # fmt: skip
    """Gradients by means and by logarithms of standard deviations before they are bounded.

    ::

        by_actions[r,n] by_log_prob:float actions[r,n] spread[r,n] slack[r,n] log_std[r,n] > grad_mean[r,n]
        grad_log_std[r,n] low:float high:float
    """

def categorical(
    sizes: _Integers, logits: _Floats, taken: _Integers, masks: _Masks | None, logs: _Floats, probabilities: _Floats,
    entropies: _Floats, log_prob: _Floats, entropy: _Floats, /,
) -> None:  # fmt: skip
    """Log-probabilities and entropies of one choice or several; ``masks`` are true where a choice is allowed.

    ::

        sizes:split[c=w] logits[r,w] taken:index[r,c<sizes] masks?:mask[r,w] > logs[r,w] probabilities[r,w] entropies[r,c]
        log_prob[r] entropy[r]
    """

def categorical_backward(
    sizes: _Integers, taken: _Integers, masks: _Masks | None, logs: _Floats, probabilities: _Floats, entropies: _Floats,
    by_log_prob: _Floats, by_entropy: float, grad_logits: _Floats, /,
) -> None:  # fmt: skip
    """The gradient by the logits.

    ::

        sizes:split[c=w] taken:index[r,c<sizes] masks?:mask[r,w] logs[r,w] probabilities[r,w] entropies[r,c] by_log_prob[r]
        by_entropy:float > grad_logits[r,w]
    """

def bernoulli(
    logits: _Floats, taken: _Floats, probabilities: _Floats, terms: _Floats, log_prob: _Floats, entropy: _Floats, /,
) -> None:  # fmt: skip
    """Log-probabilities and entropies of Bernoulli distributions; ``terms`` is room.

    ::

        logits[r,n] taken[r,n] > probabilities[r,n] terms[r,n] log_prob[r] entropy[r]
    """

def bernoulli_backward(
    logits: _Floats, taken: _Floats, probabilities: _Floats, by_log_prob: _Floats, by_entropy: float, grad_logits: _Floats, /,
) -> None:  # fmt: skip
    """The gradient by the logits.

    ::

        logits[r,n] taken[r,n] probabilities[r,n] by_log_prob[r] by_entropy:float > grad_logits[r,n]
    """

def gaussian(
    means: _Floats, actions: _Floats, log_std: _Floats, inverse: _Floats, distances: _Floats, log_prob: _Floats,
    entropy: _Floats, /,
) -> None:  # fmt: skip
    """Log-probabilities and entropies of normal distributions, whose standard deviations do not depend on the row.

    ::

        means[r,n] actions[r,n] log_std[n] > inverse[n] distances[r,n] log_prob[r] entropy[r]
    """

def gaussian_by_row(
    means: _Floats, actions: _Floats, variances: _Floats, epsilon: float, distances: _Floats, inverse: _Floats,
    log_prob: _Floats, entropy: _Floats, /,
) -> None:  # fmt: skip
    """The same with variances for each row, to which ``epsilon`` is added.

    ::

        means[r,n] actions[r,n] variances[r,n] epsilon:float > distances[r,n] inverse[r,n] log_prob[r] entropy[r]
    """

def gaussian_by_row_backward(
    distances: _Floats, inverse: _Floats, by_log_prob: _Floats, by_entropy: float, grad_means: _Floats, grad_variances: _Floats,
    /,
) -> None:  # fmt: skip
    """The gradients by means and variances.

    ::

        distances[r,n] inverse[r,n] by_log_prob[r] by_entropy:float > grad_means[r,n] grad_variances[r,n]
    """

def exp_2x(log_std: _Floats, variances: _Floats, /) -> None:
    """Variances, from logarithms of standard deviations.

    ::

        log_std[r] > variances[r]
    """

def exp(x: float, /) -> float:
    """The exponential of one number, in float32.

    ::

        x:float : float
    """

def ppo_loss(
    values: _Floats, log_prob: _Floats, entropy: _Floats | None, advantages: _Floats, returns: _Floats, old_log_prob: _Floats,
    old_values: _Floats | None, clip: float, clip_vf: float, ent_coef: float, vf_coef: float, share: float,
    grad_values: _Floats, grad_log_prob: _Floats, statistics: _Floats, /,
) -> None:  # fmt: skip
    """PPO's loss; values are clipped if there are old ones.

    ::

        values[r] log_prob[r] entropy?[r] advantages[r] returns[r] old_log_prob[r] old_values?[r] clip:float clip_vf:float
        ent_coef:float vf_coef:float share:float > grad_values[r] grad_log_prob[r] statistics[6]
    """

def td_loss(
    values: _Floats, following: _Floats, log_prob: _Floats | None, alpha: float, dones: _Floats, rewards: _Floats,
    discounts: _Floats | None, discount: float, share: float, grad_values: _Floats, /,
) -> float:  # fmt: skip
    """Squared errors of critics against rewards and the least that ``following`` says.

    ::

        values[c>0,r] following[c,r] log_prob?[r] alpha:float dones[r] rewards[r] discounts?[r] discount:float share:float >
        grad_values[c,r] : float
    """

def q_target(
    following: _Floats, choosing: _Floats | None, dones: _Floats, rewards: _Floats, discounts: _Floats | None, discount: float,
    returns: _Floats, /,
) -> None:  # fmt: skip
    """Rewards and what the best next action is worth by ``following``; ``choosing`` says which, if there is such.

    ::

        following[r,n>0] choosing?[r,n] dones[r] rewards[r] discounts?[r] discount:float > returns[r]
    """

def q_loss(values: _Floats, actions: _Integers, returns: _Floats, huber: bool, share: float, grad_values: _Floats, /) -> float:
    """Errors of the values of actions against returns, squared or by Huber.

    ::

        values[r,n] actions:index[r<n] returns[r] huber:bool share:float > grad_values[r,n] : float
    """

def quantile_loss(critics: int, rows: int, values: _Floats, returns: _Floats, share: float, grad_values: _Floats, /) -> float:
    """Errors of quantiles against returns: by Huber, and by how unlikely their side is.

    ::

        critics:size[c] rows:size[r] values[c,r,n] returns[r,m] share:float > grad_values[c,r,n] : float
    """

def weighted_sum(first: _Floats, a: float, second: _Floats | None, b: float, /) -> float:
    """The sum over rows of ``first a + second b``.

    ::

        first[r] a:float second?[r] b:float : float
    """

def standardize(numbers: _Floats, out: _Floats, /) -> None:
    """Numbers with mean 0 and standard deviation 1.

    ::

        numbers[r>1] > out[r]
    """

def adam(
    rectified: bool, decoupled: bool, weights: _Floats, gradients: _Floats, first: _Floats, second: _Floats, steps: int,
    lr: float, beta1: float, beta2: float, epsilon: float, decay: float, /,
) -> None:  # fmt: skip
    """One step of Adam, or of RAdam if it is rectified.

    ::

        rectified:bool decoupled:bool weights![r] gradients[r] first![r] second![r] steps:int lr:float beta1:float
        beta2:float epsilon:float decay:float
    """

def rmsprop(
    weights: _Floats, gradients: _Floats, squares: _Floats, lr: float, alpha: float, epsilon: float, decay: float, /,
) -> None:  # fmt: skip
    """One step of RMSprop.

    ::

        weights![r] gradients[r] squares![r] lr:float alpha:float epsilon:float decay:float
    """

def polyak(target: _Floats, weights: _Floats, tau: float, /) -> None:
    """Move a target ``tau`` of the way towards weights.

    ::

        target![r] weights[r] tau:float
    """

def add(sum: _Floats, more: _Floats, /) -> None:
    """Add numbers to others.

    ::

        sum![r,n] more[r,n]
    """

def norm(gradients: _Floats, /) -> float:
    """The Euclidean norm.

    ::

        gradients[r] : float
    """

def pack_panels(k: int, n: int, weights: _Floats, transposed: bool, panels: _Floats, /) -> None:
    """Lay out a right factor, ``(k, n)``, or ``(n, k)`` if it is transposed.

    ::

        k:size[k] n:size[n] weights[k*n] transposed:bool > panels:panels[k*n^]
    """

def lstm(
    steps: int, rows: int, features: int, hidden: int, inputs: _Floats, starts: _Floats, h: _Floats, c: _Floats,
    weights: _Floats, bias: _Floats, panels: _Floats, gates: _Floats, before: _Floats, cells: _Floats, outputs: _Floats, /,
) -> None:  # fmt: skip
    """Gates, states that steps begin with, cells and outputs of LSTM cells; ``panels`` are the recurrent weights, transposed.

    ::

        steps:size[t] rows:size[r] features:size[f] hidden:size[h] inputs[t,r,f] starts[t,r] h[r,h] c[r,h] weights[4h,f]
        bias[4h] panels:panels[h*4h^] > gates[t,r,4h] before[2,t,r,h] cells[t,r,h] outputs[t,r,h]
    """

def lstm_backward(
    steps: int, rows: int, features: int, hidden: int, inputs: _Floats, starts: _Floats, panels: _Floats, gates: _Floats,
    before: _Floats, cells: _Floats, by_outputs: _Floats, slopes: _Floats, grad_weights: _Floats, grad_recurrent: _Floats,
    grad_bias: _Floats, /,
) -> None:  # fmt: skip
    """The gradients by weights and biases; ``panels`` are the recurrent weights, ``slopes`` is room.

    ::

        steps:size[t] rows:size[r] features:size[f] hidden:size[h] inputs[t,r,f] starts[t,r] panels:panels[4h*h^]
        gates[t,r,4h] before[2,t,r,h] cells[t,r,h] by_outputs![t,r,h] > slopes[t,r,4h] grad_weights[4h,f]
        grad_recurrent[4h,h] grad_bias[4h]
    """

def gaussian_backward(
    inverse: _Floats, distances: _Floats, by_log_prob: _Floats, by_entropy: float, grad_means: _Floats, terms: _Floats,
    grad_log_std: _Floats, /,
) -> None:  # fmt: skip
    """The gradients by means and by logarithms of standard deviations; ``terms`` is room.

    ::

        inverse[n] distances[r,n] by_log_prob[r] by_entropy:float > grad_means[r,n] terms[r,n] grad_log_std[n]
    """

def gather(rows: _Integers, sources: tuple[npt.NDArray[Any], ...], targets: tuple[npt.NDArray[Any], ...], /) -> None:
    """Copy these rows of each source, in this order, into its target, ``(len(rows), ...)``; of any type.

    ::

        rows:int64[r] sources:tuple targets:tuple
    """

def orthonormal(matrix: _Floats, q: _Floats, upper: _Floats, /) -> None:
    """The factors of ``matrix = q upper``, with the signs that LAPACK has; k is the smaller one of r and n, or r.

    ::

        matrix[r,n] > q[r,k] upper[k,n]
    """
