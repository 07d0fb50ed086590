drop trigger complete_reply on turnkeeper.replies;
drop function turnkeeper.complete_reply();
drop function turnkeeper.reply_calls(bigint);
drop function turnkeeper.call_problem(text, text, text, text, text);
update turnkeeper.replies set body = '(no text)' where body = '';
alter table turnkeeper.replies drop constraint replies_body_check, drop column stop_reason, drop column error_class, drop column calls,
    add constraint replies_body_check check (body <> '');
