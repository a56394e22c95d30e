//! Constructs that PCRE2 reads differently than PCRE 8, for which today's patterns were written.
//!
//! Source: pcre2compat(3), and the change logs of PCRE2 10.43 (`{,n}`) and 10.00 (unknown escapes).

use super::repetition;

/// Mends a PCRE 8 pattern for PCRE2: letters that need no escape there are errors here, and `{,n}` is a repetition here.
pub(crate) fn pcre2(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\\' => escape_length(rest),
            '{' if !in_class && repetition(rest.as_bytes()).is_none() => {
                out.push('\\');
                1
            }
            _ => first.len_utf8(),
        };
        match first {
            '[' if !in_class => in_class = true,
            ']' => in_class = false,
            _ => {}
        }
        let (piece, after) = rest.split_at(length);
        let is_plain_letter =
            piece.len() == 2 && first == '\\' && piece.ends_with(['F', 'I', 'J', 'M', 'O', 'T', 'Y', 'i', 'j', 'm', 'q', 'y']);
        out.push_str(if is_plain_letter { &piece[1..] } else { piece });
        rest = after;
    }
    out
}

/// The length of an escape with its braces, or of `\Q...\E`.
fn escape_length(text: &str) -> usize {
    let Some(escaped) = text.chars().nth(1) else {
        return text.len();
    };
    let length = 1 + escaped.len_utf8();
    match escaped {
        'Q' => text.find("\\E").map_or(text.len(), |end| end + 2),
        'x' | 'p' | 'P' | 'g' | 'k' | 'o' | 'N' if text[length..].starts_with('{') => text.find('}').map_or(length, |end| end + 1),
        _ => length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mended_for_pcre2() {
        let cases = [
            (r"\i\m\d", r"im\d"),
            ("a{,3}", r"a\{,3}"),
            (r"\x{41}", r"\x{41}"),
            ("a{1,3}", "a{1,3}"),
            ("[{]", "[{]"),
            (r"\Q{\E{", r"\Q{\E\{"),
        ];
        for (pattern, expected) in cases {
            assert_eq!(pcre2(pattern), expected, "{pattern}");
        }
    }
}
