drop trigger complete_reply on turnkeeper.replies;
drop trigger push_reply on turnkeeper.replies;
drop function turnkeeper.claim_deliveries, turnkeeper.push_reply, turnkeeper.my_replies_after, turnkeeper.replies_after,
    turnkeeper.settled_replies, turnkeeper.complete_reply,
    turnkeeper.reply_calls, turnkeeper.call_problem;
