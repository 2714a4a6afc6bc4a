"""Many agents learn: a policy for each of them, or for each group. It needs the extra ``sb3``."""

from reactor_rl.plugin import require_extra

with require_extra("sb3", "reactor_pettingzoo.learning"):
    from reactor_pettingzoo.learning.league import League
    from reactor_pettingzoo.learning.payoffs import LeagueReport, Payoffs
    from reactor_pettingzoo.learning.sync_ippo import SyncIPPO

__all__ = ["League", "LeagueReport", "Payoffs", "SyncIPPO"]
