//! Budget use of runs and their descendants, in two columns that [`super::update`] does not
//! write, because descendants add to them.

use super::get;
use crate::kernel::ids::RunId;
use crate::kernel::run::Run;
use crate::kernel::run::budget::{Budget, Spent, UsedUp};
use crate::store::tables::columns::{columns_of, to_int, values};
use crate::store::tx::{DbError, Tx, first};

/// The budget of a run, what it has used, and the run that pays for it too.
struct Account {
    payer: Option<RunId>,
    budget: Budget,
    spent: Spent,
}

columns_of!(Account {
    payer,
    budget,
    spent
});

/// The account of that run; `None` if it has no budget.
fn account(tx: &mut dyn Tx, run: RunId) -> Result<Option<Account>, DbError> {
    first(
        tx,
        "SELECT coalesce(parent_run, root_run), budget, spent_tokens, spent_micros FROM runs \
         WHERE id = ?1 AND budget IS NOT NULL",
        &[(&run).into()],
        |row| {
            let account: Account = values(row)?;
            Ok(Account {
                payer: account.payer.filter(|above| *above != run),
                ..account
            })
        },
    )
}

/// The use is added to `run` and to each ancestor that has a budget. A run whose ancestor has a
/// budget has one too, so the first run without one ends the walk.
pub fn spend(tx: &mut dyn Tx, run: &Run, used: Spent) -> Result<(), DbError> {
    let mut next = run.budget.map(|_| run.id);
    while let Some(id) = next {
        let Some(account) = account(tx, id)? else {
            break;
        };
        tx.execute(
            "UPDATE runs SET spent_tokens = spent_tokens + ?2, spent_micros = spent_micros + ?3 \
             WHERE id = ?1",
            &[
                (&id).into(),
                to_int(used.tokens).into(),
                to_int(used.cost_micros).into(),
            ],
        )?;
        next = account.payer;
    }
    Ok(())
}

/// The exhausted budget of `run` or of its nearest ancestor with one; `None` if none is exhausted.
pub fn used_up(tx: &mut dyn Tx, run: &Run) -> Result<Option<UsedUp>, DbError> {
    let mut next = run.budget.map(|_| run.id);
    while let Some(of) = next {
        let Some(account) = account(tx, of)? else {
            break;
        };
        if let Some(why) = account.budget.exceeded(account.spent) {
            return Ok(Some(UsedUp { of, why }));
        }
        next = account.payer;
    }
    Ok(None)
}

/// The remaining budget for a child of `parent`; `None` if `parent` has no budget.
pub fn remaining(tx: &mut dyn Tx, parent: RunId) -> Result<Option<Budget>, DbError> {
    let parent = get(tx, parent)?;
    Ok(parent.and_then(|run| Some(run.budget?.remaining(run.spent))))
}
