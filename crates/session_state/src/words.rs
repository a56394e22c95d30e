//! Words in texts and in lists, in whatever case.

/// Is this word in the text, perhaps as a part of another?
pub fn contains(sql: &[u8], word: &[u8]) -> bool {
    sql.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

/// Is this word in a list of words between commas?
pub fn contains_word(value: &[u8], word: &[u8]) -> bool {
    value.split(|b| *b == b',').any(|w| w.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_a_list_is_a_whole_one() {
        for (word, expected) in [(&b"ANSI_QUOTES"[..], true), (b"ansi_quotes", true), (b"ANSI", false), (b"QUOTES", false)] {
            assert_eq!(contains_word(b"STRICT_ALL_TABLES,ANSI_QUOTES", word), expected);
        }
        assert!(contains(b"SET Role r", b"role") && !contains(b"SET", b"role"));
    }
}
