<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="zh_CN">
<context>
    <name>AboutDialog</name>
    <message>
        <source>About Reprise</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Version {0}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Language models that run on your own machine, and never read the same text twice.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Nothing is sent anywhere. Your conversations, your models and what the models remember stay in files on this computer.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Free software under the Apache License 2.0. Icons by Lucide, ISC License.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Close</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>Actions</name>
    <message>
        <source>New chat</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Search conversations</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Rename conversation</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Delete conversation</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Conversation above</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Conversation below</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Open a model file…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Models…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Unload the model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Show or hide conversations</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Show or hide the cache panel</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Settings</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Larger</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Smaller</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Original size</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Keyboard shortcuts</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>About Reprise</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Quit</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Like the system</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Light</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Dark</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Appearance</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Language</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Text size</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>CachePanel</name>
    <message>
        <source>Memory now</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Settings</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Cache panel</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>CacheStrip</name>
    <message>
        <source>{0} tokens ready, {1} to read, about {2}</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>CodeBlock</name>
    <message>
        <source>Copy</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>text</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Code, {0}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Show all %1 lines</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Show fewer lines</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Copied</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>Composer</name>
    <message>
        <source>Attach text files</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Choose a model to send this</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Message</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Stop (Esc)</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Write now, choose a model to send</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Message {0}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Send after this reply</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Enter</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Ctrl+Enter</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Send ({0})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Will be queued after this reply</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>ContextMeter</name>
    <message>
        <source>This conversation takes {0} of the {1} tokens the model can see</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>ConversationDelegate</name>
    <message>
        <source>Title of the conversation</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>ConversationListModel</name>
    <message>
        <source>New chat</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <source>%n token(s) kept</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%n would be read</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <source>ready: {0}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>unread</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Pinned</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Archived</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Chats</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>ConversationPane</name>
    <message>
        <source>New chat</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Search titles and text</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Search conversations</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Conversations</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Hide archived</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Show archived</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Nothing found for “{0}”.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>No conversations yet. Write a message to begin the first one.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Rename</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Unpin</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Pin</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Take out of the archive</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Archive</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Delete</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>EmptyState</name>
    <message>
        <source>Explain why the sky is blue, first in one sentence, then in five.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Write a Python function that finds the longest word in a text, with a test.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Help me plan a quiet weekend by the sea for two people.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>What would you like to talk about?</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>{0} answers on this computer. Nothing you write leaves it.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Choose a model to begin</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Open a GGUF file, drop one on this window, or get the small starter model. You can read and write here in the meantime.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Choose a model…</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>ErrorDialog</name>
    <message>
        <source>Something went wrong</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Copied</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Show details</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Copy details</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Close</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Hide details</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Reprise met an error it did not expect. Your conversations are safe.</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>JumpButton</name>
    <message>
        <source>Jump to latest</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>LibraryModel</name>
    <message>
        <source>context {0}</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>MainWindow</name>
    <message>
        <source>Conversation deleted</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Undo</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Message deleted</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>MessageEditor</name>
    <message>
        <source>Edit message</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>The earlier version is kept</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Send</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Save</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>MessageView</name>
    <message>
        <source>Conversation</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>MessageWidget</name>
    <message>
        <source>Your message</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Reply</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>ModelButton</name>
    <message>
        <source>Choose a model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Loading {0}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Model:</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>ModelSwitch</name>
    <message>
        <source>Open a model file</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Models (*.gguf)</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>ModelsDialog</name>
    <message>
        <source>Models</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>There is no model here yet. Open a .gguf file, or drop one on the window.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Open a file…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Unload</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Close</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Load</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Load anyway</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>NowSection</name>
    <message>
        <source>In memory</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>What the model has read and goes on from instantly.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>In reserve</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Packed tighter in memory; back in a moment.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>On disk</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Kept over a restart; back in a fraction of a second.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Shared blocks</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Saved by sharing</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Reused, last 20 turns</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Speed</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <source>Saving, %n write(s) to go</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <source>Everything is saved</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>ReasoningSection</name>
    <message>
        <source>Thinking…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Thoughts</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Thought for about {0} tokens</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>ReplyFooter</name>
    <message>
        <source>Earlier version</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Later version</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>first token {0}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>reused {0}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>read {0}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Why?</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Why so much had to be read again</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>SafeModeDialog</name>
    <message>
        <source>Reprise did not end properly last time</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Your conversations are safe. If a model was the cause, start without it and choose another one.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Start as usual</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Start without a model</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>SettingsForm</name>
    <message>
        <source>reload</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Reset</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Reload the model to apply</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Conversations are not kept ready.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>now {0}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Fewer settings</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>More settings</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Keep conversations ready</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Stores what the model has read, so that nothing is read twice.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Memory precision</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Memory per 1,000 tokens; less precision holds more.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Context length</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>How much of a conversation the model can see at once.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Memory budget</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>RAM for conversations that go on instantly.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Disk budget</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>The longest unused conversations make room for new ones.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Block size</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Smaller blocks share more, larger ones are faster.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Processor threads</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>More than the real cores rarely helps.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Give memory back after</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Idle conversations move from memory to disk.</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>ShortcutsDialog</name>
    <message>
        <source>Keyboard shortcuts</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Send the message</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>New line</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Stop the reply</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Edit the last message</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>StatusChip</name>
    <message>
        <source>Retry</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Continue</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Stopped</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>The reply reached its length limit</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>The reply failed</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>TierGauge</name>
    <message>
        <source>off</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>{0} of {1}</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>TopBar</name>
    <message>
        <source>Show or hide conversations</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Show or hide the cache panel</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Cancel loading</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Menu</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>WaitingLine</name>
    <message>
        <source>Queued, next in line</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Queued, {0} before it</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Starting…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Reading %1 of %2 tokens</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>about {0} left</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>WelcomePage</name>
    <message>
        <source>Fetching the starter model, {0}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Choose a model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>These models are on this computer.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Welcome to Reprise</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Language models that run on your own machine, and never read the same text twice. Nothing is sent anywhere. All it needs is a model.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Get the starter model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>SmolLM2 135M, 98 MB, Apache License 2.0. Small and quick, for a first try.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Open a model file…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Or drop a .gguf file anywhere on this window.</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>WhyPopover</name>
    <message>
        <source>{0} tokens were read again</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Reuse ended at token {0}.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Before</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Now</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>The conversation was new to this model.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>An earlier message or the system prompt was changed. Everything after the change has to be read again.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>This model&apos;s chat template changes earlier replies, for example it drops their thoughts. What follows the first changed place has to be read again.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>The state of this conversation was let go to stay within the memory budget. A larger budget keeps more conversations ready.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>A stored part failed its check, so it was not used and read from the text instead.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>The stored state belongs to another model or another memory precision.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Only the last, unfinished block was read again.</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>choices</name>
    <message>
        <source>This model was trained for {0} tokens.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>{0} tokens</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Automatic</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>16-bit</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>16-bit, wide range</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>32-bit, exact</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>8-bit</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>8-bit and 4-bit</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Never</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>{0} · about {1} of your conversations</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>{0} minutes</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <source>%n hour(s)</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
</context>
<context>
    <name>estimate</name>
    <message>
        <source>Needs about {0}; {1} are free.</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>formats</name>
    <message>
        <source>instant</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>{0} min</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>{0} h</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>just now</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>{0} min ago</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>{0} h ago</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>yesterday</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>{0} tokens/s</source>
        <translation type="unfinished"></translation>
    </message>
</context>
<context>
    <name>main</name>
    <message>
        <source>Reprise is running already, but does not answer.</source>
        <translation type="unfinished"></translation>
    </message>
</context>
</TS>
