//! `read_only`, as `check_type` says.

use model::snapshot::ReadOnlyCheck;

use crate::client::{Connection, Fault};

pub(super) async fn look(connection: &mut Connection, check: ReadOnlyCheck) -> Result<bool, Fault> {
    let expression = check.expression();
    match connection.query(&format!("SELECT {expression} AS read_only")).await {
        Ok(rows) => rows.scalar().map(is_read_only).ok_or_else(|| Fault::Protocol(format!("{expression} has no value"))),
        Err(fault) if fault.is_unfit() => {
            Err(Fault::Unfit(format!("check_type needs {expression}, which this server does not have: {fault}")))
        }
        Err(fault) => Err(fault),
    }
}

/// 0 and OFF are a writer; whatever else is said is not. MariaDB 12 has words beyond ON (NO_LOCK, ...): all of them refuse writes
/// of users like ours.
pub(crate) fn is_read_only(value: &str) -> bool {
    value != "0" && !value.eq_ignore_ascii_case("off")
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_zero_and_off_are_writers() {
        for (value, is_read_only) in [("0", false), ("OFF", false), ("off", false), ("1", true), ("ON", true), ("NO_LOCK_NO_ADMIN", true)] {
            assert_eq!(super::is_read_only(value), is_read_only, "{value}");
        }
    }
}
