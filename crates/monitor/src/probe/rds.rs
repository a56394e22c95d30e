//! `mysql.rds_topology`: the members of an RDS Multi-AZ DB cluster.

use topology::RdsView;

use crate::client::{Connection, Fault, Rows};

const SQL: &str = "SELECT id, endpoint, port FROM mysql.rds_topology";

/// The cluster's instances.
pub(super) async fn look(connection: &mut Connection) -> Result<RdsView, Fault> {
    match connection.query(SQL).await {
        Ok(rows) => view(&rows),
        Err(fault) if fault.is_unfit() => {
            Err(Fault::Unfit(format!("this server is not an instance of an RDS Multi-AZ DB cluster: {fault}")))
        }
        Err(fault) => Err(fault.with_hint("SELECT ON mysql.rds_topology")),
    }
}

fn view(rows: &Rows) -> Result<RdsView, Fault> {
    let instances = rows.iter().map(|row| (row.text("endpoint").unwrap_or_default().to_owned(), row.number("port").unwrap_or_default()));
    let instances: Vec<(String, u64)> = instances.collect();
    let found = RdsView::of(instances.iter().map(|(endpoint, port)| (endpoint.as_str(), *port)));
    found.ok_or_else(|| {
        let names: Vec<&str> = instances.iter().take(SHOWN).map(|(endpoint, _)| endpoint.as_str()).collect();
        Fault::Unfit(format!("mysql.rds_topology does not name the three instances of a Multi-AZ DB cluster: [{}]", names.join(", ")))
    })
}

/// Endpoints of a table that is something else that are told.
const SHOWN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINTS: [&str; 3] =
        ["c-instance-1.x.rds.amazonaws.com", "c-instance-2.x.rds.amazonaws.com", "c-instance-3.x.rds.amazonaws.com"];

    fn read(rows: &[[Option<&str>; 3]]) -> Result<Vec<String>, String> {
        let rows: Vec<&[Option<&str>]> = rows.iter().map(|row| row.as_slice()).collect();
        let found = view(&Rows::of(&["id", "endpoint", "port"], &rows)).map_err(|fault| fault.to_string())?;
        Ok(found.instances().map(ToString::to_string).collect())
    }

    #[test]
    fn three_instances() {
        let found = read(&ENDPOINTS.map(|endpoint| [Some("1"), Some(endpoint), Some("3306")])).unwrap();
        assert_eq!(found, ENDPOINTS.map(|endpoint| format!("{endpoint}:3306")));
    }

    #[test]
    fn anything_else_is_said() {
        let of = |last: [Option<&str>; 3]| {
            let [one, two] = [0, 1].map(|n: usize| [Some("1"), Some(ENDPOINTS[n]), Some("3306")]);
            read(&[one, two, last]).unwrap_err()
        };
        for last in [[None, None, None], [Some("3"), Some(ENDPOINTS[2]), Some("?")], [Some("3"), Some(ENDPOINTS[2]), Some("-1")]] {
            assert!(of(last).contains("c-instance-2"), "{}", of(last));
        }
        assert!(read(&[]).unwrap_err().ends_with("Multi-AZ DB cluster: []"));
    }
}
