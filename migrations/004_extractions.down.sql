drop table turnkeeper.extractions;
alter table turnkeeper.calls drop column input_tokens, drop column output_tokens, drop column cached_tokens,
    drop column reasoning_tokens, drop column usage_estimated;
