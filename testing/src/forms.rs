//! Forms of commands, for tests that send random ones.
//!
//! Words in braces stand for something random; what stands in square brackets is there or not. A
//! number before a form makes it so much more frequent.

use crate::dice::Dice;

/// One of these forms, by their frequency.
pub fn form<'a>(dice: &mut Dice, forms: &[&'a str]) -> &'a str {
    loop {
        let (times, form) = dice.pick(forms).split_once(' ').expect("a frequency");
        // Those that are more frequent are rejected less often.
        if dice.usize(..16) < times.parse().expect("a frequency") {
            return form;
        }
    }
}

/// The words of a form, with others in place of those in braces.
pub fn fill<W: for<'w> From<&'w str>>(
    dice: &mut Dice,
    form: &str,
    mut stand_in: impl FnMut(&mut Dice, &str) -> W,
) -> Vec<W> {
    let (mut words, mut skipped) = (Vec::new(), false);
    for part in form.split(' ') {
        if part.starts_with('[') {
            skipped = dice.bool();
        }
        let word = part.trim_matches(['[', ']']);
        if !skipped {
            words.push(if word.starts_with('{') {
                stand_in(dice, word)
            } else {
                word.into()
            });
        }
        if part.ends_with(']') {
            skipped = false;
        }
    }
    words
}
