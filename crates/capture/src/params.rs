//! Parameters of an execution, with their types: a replay can send them without anything that the client sent before.

use wire::WireError;
use wire::codec::{Reader, put_lenenc, put_lenenc_bytes, put_u32};
use wire::command::Command;
use wire::flags::Capabilities;
use wire::prepared::ExecuteParams;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params<'a> {
    /// How many.
    pub count: u16,
    /// A bit for each NULL.
    pub nulls: &'a [u8],
    /// Two bytes for each type; empty if no execution has sent them.
    pub types: std::borrow::Cow<'a, [u8]>,
    /// The values, without NULLs and long data.
    pub values: &'a [u8],
}

impl<'a> Params<'a> {
    /// Those of a COM_STMT_EXECUTE of a statement with `count` parameters. `bound` are the types that the client sent last, as
    /// [`ExecuteParams::types`] has them. None: it has query attributes too.
    ///
    /// # Errors
    /// The payload is malformed.
    pub fn of_execution(payload: &'a [u8], count: u16, bound: &'a [u8], caps: Capabilities) -> Result<Option<Self>, WireError> {
        let Some(found) = ExecuteParams::parse(payload, count, caps)? else { return Ok(Some(Self::default())) };
        if found.count != usize::from(count) {
            return Ok(None);
        }
        let part = |range| payload.get(range).ok_or(WireError::Malformed("execute is too short"));
        let types = if found.new_types { part(found.types.clone())? } else { bound };
        let types = if found.named { without_names(types)?.into() } else { types.into() };
        Ok(Some(Self { count, nulls: part(found.null_bitmap)?, types, values: part(found.values)? }))
    }

    /// A COM_STMT_EXECUTE without a cursor, on a connection without query attributes.
    pub fn payload(&self, statement: u32) -> Vec<u8> {
        let mut out = vec![Command::StmtExecute as u8];
        put_u32(&mut out, statement);
        out.push(0);
        put_u32(&mut out, 1);
        if self.count > 0 {
            out.extend_from_slice(self.nulls);
            out.push(u8::from(!self.types.is_empty()));
            out.extend_from_slice(&self.types);
            out.extend_from_slice(self.values);
        }
        out
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_lenenc(out, u64::from(self.count));
        [self.nulls, &self.types, self.values].iter().for_each(|part| put_lenenc_bytes(out, part));
    }

    pub(crate) fn decode(body: &mut Reader<'a>) -> Result<Self, WireError> {
        let count = u16::try_from(body.lenenc()?).map_err(|_| WireError::Malformed("too many parameters"))?;
        Ok(Self { count, nulls: body.lenenc_bytes()?, types: body.lenenc_bytes()?.into(), values: body.lenenc_bytes()? })
    }
}

fn without_names(types: &[u8]) -> Result<Vec<u8>, WireError> {
    let (mut reader, mut out) = (Reader::new(types), Vec::new());
    while !reader.is_empty() {
        out.extend_from_slice(reader.bytes(2)?);
        reader.lenenc_bytes()?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// COM_STMT_EXECUTE of statement 7 with a NULL and the LONG 5.
    fn execution(is_named: bool, has_types: bool) -> Vec<u8> {
        let mut out = vec![0x17, 7, 0, 0, 0, 0, 1, 0, 0, 0];
        if is_named {
            out.push(2);
        }
        out.push(0b01);
        out.push(u8::from(has_types));
        if has_types {
            out.extend_from_slice(if is_named { &[3, 0, 0, 3, 0, 0] } else { &[3, 0, 3, 0] });
        }
        out.extend_from_slice(&[5, 0, 0, 0]);
        out
    }

    #[test]
    fn types_stand_in_each_execution() {
        let plain = Capabilities::PROTOCOL_41;
        let attributes = plain | Capabilities::QUERY_ATTRIBUTES;
        let wanted = execution(false, true);
        for (payload, bound, caps) in [
            (execution(false, true), &[][..], plain),
            (execution(false, false), &[3, 0, 3, 0][..], plain),
            (execution(true, true), &[], attributes),
            (execution(true, false), &[3, 0, 0, 3, 0, 0], attributes),
        ] {
            let params = Params::of_execution(&payload, 2, bound, caps).unwrap().unwrap();
            assert_eq!(params.payload(7), wanted);
            let mut bytes = Vec::new();
            params.encode(&mut bytes);
            assert_eq!(Params::decode(&mut Reader::new(&bytes)).unwrap(), params);
        }
        assert_eq!(Params::of_execution(&execution(true, true), 1, &[], attributes), Ok(None), "a query attribute");
        assert_eq!(Params::of_execution(&execution(false, true)[..10], 0, &[], plain), Ok(Some(Params::default())));
    }
}
