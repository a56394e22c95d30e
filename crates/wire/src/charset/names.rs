//! Converts names from a client's character set to UTF-8, in which servers store and report them.

use encoding_rs::{
    BIG5, EUC_JP, EUC_KR, Encoding, GB18030, GBK, IBM866, ISO_8859_2, ISO_8859_7, ISO_8859_8, ISO_8859_13, KOI8_R, KOI8_U, MACINTOSH,
    SHIFT_JIS, WINDOWS_874, WINDOWS_1250, WINDOWS_1251, WINDOWS_1252, WINDOWS_1254, WINDOWS_1256, WINDOWS_1257,
};
use std::borrow::Cow;

/// The characters from 0x80 on of the Windows command line (cp850).
const CP850: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜø£Ø×ƒáíóúñÑªº¿®¬½¼¡«»░▒▓│┤ÁÂÀ©╣║╗╝¢¥┐└┴┬├─┼ãÃ╚╔╩╦╠═╬¤ðÐÊËÈıÍÎÏ┘┌█▄¦Ì▀ÓßÔÒõÕµþÞÚÛÙýÝ¯´\u{ad}±‗¾¶§÷¸°¨·¹³²■\u{a0}";
const CP852: &str = "ÇüéâäůćçłëŐőîŹÄĆÉĹĺôöĽľŚśÖÜŤťŁ×čáíóúĄąŽžĘę¬źČş«»░▒▓│┤ÁÂĚŞ╣║╗╝Żż┐└┴┬├─┼Ăă╚╔╩╦╠═╬¤đĐĎËďŇÍÎě┘┌█▄ŢŮ▀ÓßÔŃńňŠšŔÚŕŰýÝţ´\u{ad}˝˛ˇ˘§÷¸°¨˙űŘř■\u{a0}";

/// Is text in this character set UTF-8 as it is? `binary` is taken so.
#[must_use]
pub fn is_utf8(charset: &[u8]) -> bool {
    matches!(charset, b"utf8mb4" | b"utf8mb3" | b"utf8" | b"binary" | b"ascii")
}

/// The name as UTF-8. `None` if it is invalid in this character set, or the character set is unknown here (`armscii8`, `dec8`, `geostd8`,
/// `hp8`, `keybcs2`, `macce`, `swe7`).
#[must_use]
pub fn to_utf8<'a>(charset: &[u8], name: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    if name.is_ascii() {
        return Some(Cow::Borrowed(name));
    }
    if is_utf8(charset) {
        return std::str::from_utf8(name).is_ok().then_some(Cow::Borrowed(name));
    }
    let upper = match charset {
        b"cp850" => CP850,
        b"cp852" => CP852,
        _ => {
            let text = encoding(charset)?.decode_without_bom_handling_and_without_replacement(name)?;
            return Some(Cow::Owned(text.into_owned().into_bytes()));
        }
    };
    let character = |byte: u8| match byte.checked_sub(0x80) {
        None => Some(char::from(byte)),
        Some(at) => upper.chars().nth(usize::from(at)),
    };
    name.iter().map(|byte| character(*byte)).collect::<Option<String>>().map(|text| Cow::Owned(text.into_bytes()))
}

fn encoding(charset: &[u8]) -> Option<&'static Encoding> {
    Some(match charset {
        // The servers' latin1 is Windows' too.
        b"latin1" => WINDOWS_1252,
        b"latin2" => ISO_8859_2,
        b"latin5" => WINDOWS_1254,
        b"latin7" => ISO_8859_13,
        b"greek" => ISO_8859_7,
        b"hebrew" => ISO_8859_8,
        b"cp1250" => WINDOWS_1250,
        b"cp1251" => WINDOWS_1251,
        b"cp1256" => WINDOWS_1256,
        b"cp1257" => WINDOWS_1257,
        b"cp866" => IBM866,
        b"koi8r" => KOI8_R,
        b"koi8u" => KOI8_U,
        b"macroman" => MACINTOSH,
        b"tis620" => WINDOWS_874,
        b"big5" => BIG5,
        b"euckr" => EUC_KR,
        b"gb2312" | b"gbk" => GBK,
        b"gb18030" => GB18030,
        b"sjis" | b"cp932" => SHIFT_JIS,
        b"ujis" | b"eucjpms" => EUC_JP,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(charset: &str, name: &[u8]) -> Option<String> {
        to_utf8(charset.as_bytes(), name).map(|name| String::from_utf8(name.into_owned()).unwrap())
    }

    #[test]
    fn names_are_read_in_the_clients_character_set() {
        for (charset, bytes) in [
            ("latin1", &b"gr\xfc\xdfe"[..]),
            ("latin2", b"gr\xfc\xdfe"),
            ("latin5", b"gr\xfc\xdfe"),
            ("cp850", b"gr\x81\xe1e"),
            ("cp852", b"gr\x81\xe1e"),
            ("macroman", b"gr\x9f\xa7e"),
            ("utf8mb4", "grüße".as_bytes()),
            ("binary", "grüße".as_bytes()),
        ] {
            assert_eq!(read(charset, bytes).as_deref(), Some("grüße"), "{charset}");
        }
        assert_eq!(read("sjis", b"\x93\xfa\x96\x7b").as_deref(), Some("日本"));
        assert_eq!(read("gbk", b"\xc8\xd5\xb1\xbe").as_deref(), Some("日本"));
        assert_eq!(read("koi8r", b"\xc4\xc1").as_deref(), Some("да"));
    }

    #[test]
    fn what_is_no_name_there_is_none() {
        assert_eq!(read("utf8mb4", b"\xfc"), None);
        assert_eq!(read("gbk", b"\xc8"), None);
        assert_eq!(read("swe7", b"\xfc"), None, "a character set that is not known");
        assert_eq!(read("swe7", b"shop").as_deref(), Some("shop"));
        assert_eq!([CP850, CP852].map(|upper| upper.chars().count()), [128; 2]);
    }
}
