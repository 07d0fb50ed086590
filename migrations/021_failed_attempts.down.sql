-- The turns' own sums lose what the table accounted for, so that they stay those of their parts.
update turnkeeper.turns t set input_tokens = t.input_tokens - f.input, output_tokens = t.output_tokens - f.output,
    cached_tokens = t.cached_tokens - f.cached, reasoning_tokens = t.reasoning_tokens - f.reasoning
from (select turn_id, sum(input_tokens) as input, sum(output_tokens) as output, sum(cached_tokens) as cached, sum(reasoning_tokens) as reasoning
      from turnkeeper.failed_attempts group by turn_id) f
where f.turn_id = t.id;
drop table turnkeeper.failed_attempts;
