//! Rows of a text result, by column name: versions add columns in different places.

use wire::codec::Reader;

use super::fault::Fault;

/// A result, small enough to be kept whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Names of the columns, in lower case.
    columns: Vec<String>,
    rows: Vec<Vec<Option<String>>>,
}

impl Rows {
    /// Takes a column definition (ColumnDefinition41): the fifth string is the name.
    pub(super) fn add_column(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let mut reader = Reader::new(payload);
        for _catalog_schema_table_original in 0..4 {
            reader.lenenc_bytes()?;
        }
        self.columns.push(String::from_utf8_lossy(reader.lenenc_bytes()?).to_ascii_lowercase());
        Ok(())
    }

    /// Adds a row packet. Errors if it does not have one value per column.
    pub(super) fn add_row(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let mut reader = Reader::new(payload);
        let row = self.columns.iter().map(|_| value(&mut reader)).collect::<Result<_, Fault>>()?;
        self.rows.push(row);
        Ok(())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|values| Row { columns: &self.columns, values })
    }

    pub(crate) fn first(&self) -> Option<Row<'_>> {
        self.iter().next()
    }

    /// The first value of the first row.
    pub(crate) fn scalar(&self) -> Option<&str> {
        self.rows.first()?.first()?.as_deref()
    }

    /// The value beside `name`, of a result whose rows are names and values.
    pub(crate) fn named(&self, name: &str) -> Option<&str> {
        let row = self.rows.iter().find(|row| row.first().and_then(|n| n.as_deref()).is_some_and(|n| n.eq_ignore_ascii_case(name)))?;
        row.get(1)?.as_deref()
    }

    #[cfg(test)]
    pub(crate) fn of(columns: &[&str], rows: &[&[Option<&str>]]) -> Self {
        let row = |row: &&[Option<&str>]| row.iter().map(|value| value.map(str::to_owned)).collect();
        Self { columns: columns.iter().map(|name| name.to_ascii_lowercase()).collect(), rows: rows.iter().map(row).collect() }
    }
}

/// One value: NULL or text.
fn value(reader: &mut Reader<'_>) -> Result<Option<String>, Fault> {
    let Some(len) = reader.lenenc_opt()? else { return Ok(None) };
    let bytes = reader.bytes(usize::try_from(len).unwrap_or(usize::MAX))?;
    Ok(Some(String::from_utf8_lossy(bytes).into_owned()))
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a> {
    columns: &'a [String],
    values: &'a [Option<String>],
}

impl<'a> Row<'a> {
    /// Whether there is such a column; names are in lower case.
    pub(crate) fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|name| name == column)
    }

    /// A value; None for NULL and for a column that is not there.
    pub(crate) fn text(&self, column: &str) -> Option<&'a str> {
        let index = self.columns.iter().position(|name| name == column)?;
        self.values.get(index)?.as_deref()
    }

    /// The value in this place; None for NULL.
    pub(crate) fn at(&self, place: usize) -> Option<&'a str> {
        self.values.get(place)?.as_deref()
    }

    /// A number, cut to a whole one; None for other text.
    pub(crate) fn number(&self, column: &str) -> Option<u64> {
        whole_number(self.text(column)?)
    }
}

/// `12`, `12.7` (12) and `-3` (0).
pub(crate) fn whole_number(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let number: f64 = text.parse().ok()?;
    // A cast from a float saturates, which suits a measured value.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    number.is_finite().then_some(number as u64)
}

/// 1, ON and YES are true, whatever the case.
pub(crate) fn is_on(text: &str) -> bool {
    text == "1" || text.eq_ignore_ascii_case("on") || text.eq_ignore_ascii_case("yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name() {
        let rows = Rows::of(&["Channel_Name", "Lag"], &[&[Some("a"), None], &[Some("b"), Some("12.9")]]);
        let all: Vec<Row<'_>> = rows.iter().collect();
        assert_eq!((all[0].text("channel_name"), all[0].number("lag")), (Some("a"), None));
        assert_eq!(all[1].number("lag"), Some(12));
        assert!(!all[1].has("nothing"));
        assert_eq!((rows.scalar(), rows.named("B")), (Some("a"), Some("12.9")));
    }

    #[test]
    fn numbers_never_panic() {
        for (text, number) in [("7", Some(7)), ("-1", Some(0)), ("1e300", Some(u64::MAX)), ("x", None), ("nan", None)] {
            assert_eq!(whole_number(text), number, "{text}");
        }
    }
}
