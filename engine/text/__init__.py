"""Text and tokens: what stands between messages and token ids, both ways.

On the way in: chat_template (messages -> text; sandbox bounds what a template may do), then
tokenizer (text -> ids; vocabulary holds the token list, byte_level and merging cut text,
pre_tokenizers name the rules). On the way out: detokenizer (ids -> whole characters), stop (stop
strings), output_parser (reasoning and content), reply (the three in line).

To add a pre-tokenizer: a rule in pre_tokenizers.py. To add reasoning tags: a line in
output_parser.py, and the tag's text in vocabulary.py where it may be a control token. Both are
checked against llama.cpp's ids, or against the published template.
"""
